// SPDX-License-Identifier: MIT
#include "finetune/state/finite_state.h"

#include "finetune/tensor/finite.h"

namespace finetune {

std::string nonfinite_part(const Optimizer& optimizer) {
  const std::vector<Parameter>& parameters = optimizer.parameters().parameters();
  for (const Parameter& parameter : parameters) {
    if (!is_finite(parameter.weight.detach())) return "the weight '" + parameter.name + "'";
  }
  for (const Optimizer::Slot& slot : optimizer.slots()) {
    for (const auto& [name, values] : slot.state) {
      if (!values.defined() || is_finite(values)) continue;
      return "the optimizer's state '" + name + "' of '" + parameters[slot.parameter].name + "'";
    }
  }
  return "";
}

}  // namespace finetune
