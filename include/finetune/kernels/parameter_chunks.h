// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "finetune/kernels/parameter_tensors.h"

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
void update_in_chunks(const ParameterTensors& parameter, double factor, uint64_t rounding_key,
                      const std::function<void(const ParameterChunk&)>& update, int64_t row = 1);

// The same for reading gradients only.
void read_gradient_in_chunks(const ParameterTensors& parameter, double factor,
                             const std::function<void(const ParameterChunk&)>& read,
                             int64_t row = 1);

// A chunk of one of several parameters.
struct ListedChunk {
  size_t index = 0;  // of the parameter in the list
  ParameterChunk chunk;
};

// Calls `update` with all values of these parameters, each once, in lists of chunks that a core's
// cache has room for: many small parameters make one list, a large one makes many. Calls come from
// several threads at once, which divide the values evenly; ATen's operators within a call use one
// thread. Chunks begin at multiples of 64 values, so results do not depend on the number of
// threads. Requires: weights and gradients in float32, on the CPU.
void update_in_lists(const std::vector<const ParameterTensors*>& parameters, double factor,
                     const std::function<void(std::span<const ListedChunk>)>& update);

}  // namespace finetune
