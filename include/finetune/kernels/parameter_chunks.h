// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>

#include "finetune/kernels/parameter_store.h"

namespace finetune {

// A range of a parameter's values with their gradient, float32 and flat.
struct ParameterChunk {
  int64_t first = 0;
  int64_t count = 0;
  Tensor weight;    // written back after the call
  Tensor gradient;  // multiplied by the factor; must not be written

  // Returns the same range of a state tensor with the parameter's shape.
  [[nodiscard]] Tensor of(const Tensor& state) const;
};

// Calls `update` for each chunk of a parameter in order. Chunks fit into the processor's cache, so
// that no complete weight or gradient is converted to float32, and contain whole rows of `row`
// values. bfloat16 weights are rounded stochastically with `rounding_key`.
void update_in_chunks(const Parameter& parameter, double factor, uint64_t rounding_key,
                      const std::function<void(const ParameterChunk&)>& update, int64_t row = 1);

// The same for reading gradients only.
void read_gradient_in_chunks(const Parameter& parameter, double factor,
                             const std::function<void(const ParameterChunk&)>& read,
                             int64_t row = 1);

// Whether operations should use whole tensors, and lists of them, on this tensor's device instead
// of chunks, because a launch costs more than the memory.
[[nodiscard]] bool is_asynchronous(const Tensor& x);

}  // namespace finetune
