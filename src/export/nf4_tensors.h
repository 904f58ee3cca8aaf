// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "finetune/export/merged_model.h"

namespace finetune {

// Makes tensors in bitsandbytes' NF4 of matrices: codes under their names, and under names with
// endings what they mean.
class Nf4Tensors {
 public:
  // With `nested`, scales are quantised too, and add() reads each matrix once, because the mean of
  // its scales is part of a text whose length must be known.
  explicit Nf4Tensors(bool nested);

  // Appends the tensors of a matrix. `type`: the type in which it is computed, to which its values
  // are rounded first; `type_name`: its name in torch. While they are written, which may outlive
  // this object, one matrix at a time is in memory.
  void add(const MergedTensor& matrix, at::ScalarType type, const std::string& type_name,
           LazyTensors& tensors) const;

 private:
  struct Last;  // the matrix that was quantised last
  bool nested_;
  std::shared_ptr<Last> last_;
};

// The entry quantization_config of config.json; `whole`: the modules that are not quantised.
[[nodiscard]] nlohmann::ordered_json nf4_quantization_config(const std::string& type, bool nested,
                                                             const std::vector<std::string>& whole);

}  // namespace finetune
