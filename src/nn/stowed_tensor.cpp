// SPDX-License-Identifier: MIT
#include "nn/stowed_tensor.h"

#include <utility>

namespace finetune::nn {

StowedTensor::StowedTensor(const Tensor& x, bool offload)
    : device_(x.device()), is_offloaded_(offload && !x.is_cpu() && !x.is_meta()) {
  if (is_offloaded_) {
    copy_.emplace(StreamCopy::to_host(x));
  } else {
    tensor_ = x;
  }
}

void StowedTensor::leave() {
  if (!is_offloaded_) return;
  tensor_ = copy_->take();
  copy_.reset();
}

void StowedTensor::fetch() {
  if (is_offloaded_ && !copy_) copy_.emplace(StreamCopy::to_device(tensor_, device_));
}

Tensor StowedTensor::take() {
  if (!is_offloaded_) return std::exchange(tensor_, {});
  fetch();
  tensor_ = Tensor();
  Tensor result = copy_->take();
  copy_.reset();
  return result;
}

}  // namespace finetune::nn
