// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "finetune/kernels/parameter_store.h"

namespace finetune {

// While the object exists, additions of the calling thread to a store's gradients go to `gradients`
// instead: one tensor per parameter, created by the first addition. This lets several threads
// compute micro-batches of one model concurrently. complete() does not call the store's listener.
// Requires: float32 gradients; one object per thread.
class SeparateGradients {
 public:
  SeparateGradients(const ParameterStore& store, std::vector<Tensor>& gradients);
  ~SeparateGradients();
  SeparateGradients(const SeparateGradients&) = delete;
  SeparateGradients& operator=(const SeparateGradients&) = delete;

  // Returns the gradients that the calling thread adds to; nullptr: the store's own.
  [[nodiscard]] static std::vector<Tensor>* of(const ParameterStore& store);
};

}  // namespace finetune
