// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "finetune/kernels/parameter_store.h"

namespace finetune {

// While it lives, what the calling thread adds to a store's gradients goes to `gradients` instead:
// one for each parameter, made by the first addition. So several threads can compute micro-batches
// of one model at the same time. On a device it is what any thread adds, because autograd's own
// thread runs the backward pass. Parameters complete without notice to the store's listener.
// Requires: float32 gradients; one of these a thread, on a device one in all.
class SeparateGradients {
 public:
  SeparateGradients(const ParameterStore& store, std::vector<Tensor>& gradients);
  ~SeparateGradients();
  SeparateGradients(const SeparateGradients&) = delete;
  SeparateGradients& operator=(const SeparateGradients&) = delete;

  // Returns the gradients that the calling thread adds to; nullptr: the store's own.
  [[nodiscard]] static std::vector<Tensor>* of(const ParameterStore& store);

 private:
  const ParameterStore& store_;
};

}  // namespace finetune
