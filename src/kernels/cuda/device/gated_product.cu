// SPDX-License-Identifier: MIT
// f(gate) * up (Shazeer 2020), with f by variant: 0 SiLU, 1 the exact GELU, 2 its tanh form. A
// thread handles eight values.
#include "kernels/cuda/device/activations.h"

namespace finetune::kernels::cuda {

template <class T, int kVariant>
__device__ void gated_product(const GatedProductArguments& a) {
  const i64 first = 8 * (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x);
  if (first >= a.count) return;
  float gate[8];
  float up[8];
  load8(static_cast<const T*>(a.gate), first, a.count, a.is_aligned, gate);
  load8(static_cast<const T*>(a.up), first, a.count, a.is_aligned, up);
#pragma unroll
  for (int i = 0; i < 8; ++i) gate[i] = activate<kVariant, T>(gate[i]).value * up[i];
  store8(static_cast<T*>(a.output), first, a.count, a.is_aligned, gate);
}

// The factors become their gradients.
template <class T, int kVariant>
__device__ void gated_product_backward(const GatedProductArguments& a) {
  const i64 first = 8 * (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x);
  if (first >= a.count) return;
  float gate[8];
  float up[8];
  float dy[8];
  load8(static_cast<const T*>(a.gate), first, a.count, a.is_aligned, gate);
  load8(static_cast<const T*>(a.up), first, a.count, a.is_aligned, up);
  load8(static_cast<const T*>(a.gradient), first, a.count, a.is_aligned, dy);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const Activated f = activate<kVariant, T>(gate[i]);
    gate[i] = dy[i] * up[i] * f.slope;
    up[i] = dy[i] * f.value;
  }
  store8(static_cast<T*>(a.gate), first, a.count, a.is_aligned, gate);
  store8(static_cast<T*>(a.up), first, a.count, a.is_aligned, up);
}

}  // namespace finetune::kernels::cuda
