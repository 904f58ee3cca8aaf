// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

#include <string>
#include <string_view>

#include "finetune/tensor/tensor.h"

namespace finetune::nn {

// Registers the parameters that parts create: a list in the order of creation, which is the order
// in which transformers numbers them, and the prefix of their names in a checkpoint. On the meta
// device nothing is allocated, which gives the names and shapes of any model for free; a
// ParameterStore then allocates each parameter in its format.
class Scope {
 public:
  // `list` must outlive the scope.
  Scope(NamedTensors& list, c10::Device device) : list_(&list), device_(device) {}

  // Returns the scope of a child: "encoder" / "layer" / 0 is the prefix "encoder.layer.0.".
  [[nodiscard]] Scope operator/(std::string_view name) const;
  [[nodiscard]] Scope operator/(int64_t index) const { return *this / std::to_string(index); }

  // Creates an uninitialised float32 tensor that requires a gradient, and appends it to the list.
  [[nodiscard]] Tensor parameter(std::string_view name, c10::IntArrayRef sizes,
                                 ParameterRole role = ParameterRole::kOther) const;

 private:
  NamedTensors* list_;
  c10::Device device_;
  std::string prefix_;
};

}  // namespace finetune::nn
