// SPDX-License-Identifier: MIT
// Moves tokens to the heads of padded samples and back, for up to four tensors in one launch: block
// (x, y) moves token x % length of sample x / length of tensor y.
#include "kernels/cuda/device/common.h"

namespace finetune::kernels::cuda {

constexpr int kSplit = 0;
constexpr int kJoin = 1;

template <class T, int kDirection>
__device__ void heads(const HeadsArguments& a) {
  const HeadsArguments::Part part = a.parts[blockIdx.y];
  const i64 sample = blockIdx.x / a.length;
  const i64 position = blockIdx.x % a.length;
  const bool has_layout = a.starts != nullptr;
  const i64 start = has_layout ? a.starts[sample] - a.first_token : sample * a.tokens;
  const i64 tokens = has_layout ? a.starts[sample + 1] - a.starts[sample] : a.tokens;
  const bool is_padding = position >= tokens;
  if (kDirection == kJoin && is_padding) return;
  T* const token =
      static_cast<T*>(part.tokens) + (start + position) * static_cast<i64>(part.heads) * a.size;
  T* const by_head =
      static_cast<T*>(part.by_head) + (sample * part.heads * a.length + position) * a.size;
  const int vectors = (a.size + 3) / 4;
  for (int i = static_cast<int>(threadIdx.x); i < part.heads * vectors;
       i += static_cast<int>(blockDim.x)) {
    const int head = i / vectors;
    const i64 first = 4 * (i % vectors);
    T* const in_token = token + static_cast<i64>(head) * a.size;
    T* const in_head = by_head + static_cast<i64>(head) * a.length * a.size;
    float values[4] = {};
    if (kDirection == kJoin) {
      load4(in_head, first, a.size, a.is_aligned, values);
      store4(in_token, first, a.size, a.is_aligned, values);
    } else {
      if (!is_padding) load4(in_token, first, a.size, a.is_aligned, values);
      store4(in_head, first, a.size, a.is_aligned, values);
    }
  }
}

}  // namespace finetune::kernels::cuda
