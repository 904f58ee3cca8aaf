// SPDX-License-Identifier: MIT
#include "finetune/nn/scope.h"

#include <ATen/ops/empty.h>

namespace finetune::nn {

Scope Scope::operator/(std::string_view name) const {
  Scope child = *this;
  child.prefix_.append(name).append(".");
  return child;
}

Tensor Scope::parameter(std::string_view name, c10::IntArrayRef sizes, ParameterRole role) const {
  Tensor tensor =
      at::empty(sizes, at::TensorOptions(device_).dtype(at::kFloat)).set_requires_grad(true);
  list_->push_back({prefix_ + std::string(name), tensor, role});
  return tensor;
}

}  // namespace finetune::nn
