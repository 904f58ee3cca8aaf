// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <optional>

#include "finetune/tensor/stream_copy.h"

namespace finetune::nn {

// The input of a segment between its forward and its backward pass. It stays where it is, or is in
// host memory meanwhile; then copies run concurrently with the segment's kernels.
class StowedTensor {
 public:
  // Starts to copy x to the host if `offload`. On the CPU x stays where it is.
  StowedTensor(const Tensor& x, bool offload);

  // Frees the memory of an offloaded tensor on the device. Requires: the segment's forward pass is
  // launched, so that the copy ran concurrently with it.
  void leave();
  // Starts to copy an offloaded tensor back, unless that has started.
  void fetch();
  // Returns the tensor, on its device.
  [[nodiscard]] Tensor take();

 private:
  Tensor tensor_;  // where it is kept
  c10::Device device_;
  std::optional<StreamCopy> copy_;
  bool is_offloaded_;
  std::function<Tensor()> again_;  // in a dry run: allocates the tensor
};

}  // namespace finetune::nn
