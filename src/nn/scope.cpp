// SPDX-License-Identifier: MIT
#include "finetune/nn/scope.h"

namespace finetune::nn {

Scope Scope::operator/(std::string_view name) const {
  Scope child = *this;
  child.prefix_.append(name).append(".");
  return child;
}

Weight Scope::parameter(std::string_view name, c10::IntArrayRef sizes, ParameterRole role) const {
  return list_->emplace_back(list_->size(), prefix_ + std::string(name), sizes, role);
}

}  // namespace finetune::nn
