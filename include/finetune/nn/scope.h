// SPDX-License-Identifier: MIT
#pragma once

#include <c10/util/ArrayRef.h>

#include <string>
#include <string_view>

#include "finetune/params/weight.h"

namespace finetune::nn {

// Registers the parameters that parts create: a list in the order of creation, which is the order
// in which transformers numbers them, and the prefix of their names in a checkpoint. Nothing is
// allocated, which gives the names and shapes of any model for free; a ParameterStore then
// allocates each parameter in its format.
class Scope {
 public:
  // `list` must outlive the scope.
  explicit Scope(Weights& list) : list_(&list) {}

  // Returns the scope of a child: "encoder" / "layer" / 0 is the prefix "encoder.layer.0.".
  [[nodiscard]] Scope operator/(std::string_view name) const;
  [[nodiscard]] Scope operator/(int64_t index) const { return *this / std::to_string(index); }

  // Appends a parameter to the list.
  [[nodiscard]] Weight parameter(std::string_view name, c10::IntArrayRef sizes,
                                 ParameterRole role = ParameterRole::kOther) const;

 private:
  Weights* list_;
  std::string prefix_;
};

}  // namespace finetune::nn
