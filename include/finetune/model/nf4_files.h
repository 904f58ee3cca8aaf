// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "finetune/params/quantized_values.h"
#include "finetune/tensor/model_tensors.h"

namespace finetune {

// Matrices in bitsandbytes' NF4 format among the tensors of a folder: "W" holds codes, and
// "W.absmax", "W.quant_map", "W.quant_state.bitsandbytes__nf4" and, with double quantisation,
// "W.nested_absmax" and "W.nested_quant_map" what they mean.
class Nf4Files {
 public:
  explicit Nf4Files(const ModelTensors& tensors) : tensors_(tensors) {}

  [[nodiscard]] bool has(const std::string& name) const;
  // Whether a tensor says what another's codes mean.
  [[nodiscard]] bool is_part(const std::string& name) const;
  // The matrix's logical shape, and the type in which it was computed: reads no codes. Requires:
  // has(name). Throws Error(kData).
  [[nodiscard]] std::pair<std::vector<int64_t>, at::ScalarType> shape_and_type(
      const std::string& name) const;
  // Requires: has(name). Throws Error(kData) where the parts contradict each other, or hold numbers
  // that no quantisation gives.
  [[nodiscard]] QuantizedValues read(const std::string& name) const;

 private:
  const ModelTensors& tensors_;
};

}  // namespace finetune
