// SPDX-License-Identifier: MIT
#include "nn/stowed_tensor.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "finetune/kernels/kernels_in_use.h"

namespace finetune::nn {

StowedTensor::StowedTensor(const Tensor& x, bool offload)
    : device_(x.device()), is_offloaded_(offload && is_asynchronous(x.device())) {
  if (is_offloaded_ && x.is_meta()) {
    tensor_ = x;
    again_ = [sizes = x.sizes().vec(), options = x.options()] { return at::empty(sizes, options); };
  } else if (is_offloaded_) {
    copy_.emplace(StreamCopy::to_host(x));
  } else {
    tensor_ = x;
  }
}

void StowedTensor::leave() {
  if (!is_offloaded_) return;
  if (again_) {
    tensor_ = Tensor();
    return;
  }
  tensor_ = copy_->take();
  copy_.reset();
}

void StowedTensor::fetch() {
  if (again_ && !tensor_.defined()) tensor_ = again_();
  if (is_offloaded_ && !again_ && !copy_) copy_.emplace(StreamCopy::to_device(tensor_, device_));
}

Tensor StowedTensor::take() {
  if (!is_offloaded_) return std::exchange(tensor_, {});
  fetch();
  if (again_) return std::exchange(tensor_, {});
  tensor_ = Tensor();
  Tensor result = copy_->take();
  copy_.reset();
  return result;
}

}  // namespace finetune::nn
