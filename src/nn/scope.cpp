// SPDX-License-Identifier: MIT
#include "finetune/nn/scope.h"

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/base/text.h"

namespace finetune::nn {

Scope Scope::operator/(std::string_view name) const {
  Scope child = *this;
  child.prefix_.append(name).append(".");
  return child;
}

Scope Scope::of_output() const {
  Scope output = *this;
  output.is_output_ = true;
  return output;
}

std::optional<LoraTerm> Scope::lora(int64_t inputs, int64_t outputs) const {
  if (lora_ == nullptr || !lora_->has(prefix_.substr(0, prefix_.size() - 1), is_output_)) {
    return std::nullopt;
  }
  const LoraConfig& config = lora_->config();
  if (config.r > std::min(inputs, outputs)) {
    throw LoraError(
        "lora_r", format_text("rank {} is above the size of '{}' [{}, {}], where an adapter saves "
                              "nothing; lower lora_r",
                              config.r, prefix_.substr(0, prefix_.size() - 1), outputs, inputs));
  }
  // In this order of evaluation: A is numbered before B.
  const Weight a = parameter("lora_A.weight", {config.r, inputs}, ParameterRole::kAdapter);
  const Weight b = parameter("lora_B.weight", {outputs, config.r}, ParameterRole::kAdapter);
  return LoraTerm{a, b, config.scale(), config.lora_dropout};
}

Weight Scope::parameter(std::string_view name, c10::IntArrayRef sizes, ParameterRole role) const {
  return list_->emplace_back(list_->size(), prefix_ + std::string(name), sizes, role);
}

}  // namespace finetune::nn
