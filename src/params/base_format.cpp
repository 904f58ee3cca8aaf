// SPDX-License-Identifier: MIT
#include "finetune/params/base_format.h"

#include <algorithm>

namespace finetune {

WeightFormat BaseFormat::of(const std::string& parameter, ParameterRole role) const {
  if (std::ranges::find(mxfp4, parameter) != mxfp4.end()) return WeightFormat::kMxfp4;
  if (!matrices || role != ParameterRole::kLinear) return weights;
  const std::string module = parameter.substr(0, parameter.rfind('.'));
  const bool is_skipped = std::ranges::any_of(skipped, [&](const std::string& name) {
    return module == name || module.starts_with(name + ".") || module.ends_with("." + name);
  });
  return is_skipped ? weights : *matrices;
}

}  // namespace finetune
