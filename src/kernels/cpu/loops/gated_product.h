// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kernels/cpu/loops/vector_lanes.h"

namespace finetune::kernels {

// The arithmetic over contiguous values, without torch.
template <typename Storage>
struct SwiGlu {
  const Storage* gate;
  const Storage* up;
  Storage* output;  // SiLU(gate) * up
  int64_t first;
  int64_t last;
};

template <typename Storage>
struct SwiGluBackward {
  Storage* gate;  // become their gradients
  Storage* up;
  const Storage* gradient;
  int64_t first;
  int64_t last;
};

void swiglu(const SwiGlu<float>& values);
void swiglu(const SwiGlu<BFloat16Bits>& values);
void swiglu(const SwiGlu<HalfBits>& values);

void swiglu_backward(const SwiGluBackward<float>& values);
void swiglu_backward(const SwiGluBackward<BFloat16Bits>& values);
void swiglu_backward(const SwiGluBackward<HalfBits>& values);

}  // namespace finetune::kernels
