// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kernels/cpu/loops/vector_lanes.h"

namespace finetune::kernels {

// The arithmetic over contiguous values, without torch.
struct XieluFactors {
  float of_squares, of_powers;  // a and b of layer_operations.h
};

template <typename Storage>
struct XieluValues {
  const Storage* x;
  Storage* output;
  XieluFactors factors;
  int64_t first;
  int64_t last;
};

template <typename Storage>
struct XieluBackward {
  const Storage* x;
  Storage* gradient;  // of the output; becomes that of x
  double* sums;       // [2]: the gradients of the factors are added
  XieluFactors factors;
  int64_t first;
  int64_t last;
};

void xielu_values(const XieluValues<float>& values);
void xielu_values(const XieluValues<BFloat16Bits>& values);
void xielu_values(const XieluValues<HalfBits>& values);

void xielu_backward_values(const XieluBackward<float>& values);
void xielu_backward_values(const XieluBackward<BFloat16Bits>& values);
void xielu_backward_values(const XieluBackward<HalfBits>& values);

}  // namespace finetune::kernels
