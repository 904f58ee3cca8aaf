// SPDX-License-Identifier: MIT
// Rows of block-sparse attention scores: softmax and dropout, forward and backward. Column j of a
// row is key j % S of the (j / S)-th block that its block of queries sees; S is a multiple of four,
// so that four columns are four keys of one dropout number.
#include "kernels/cuda/device/score_rows.h"

namespace finetune::kernels::cuda {

// Up to 512, 1,024 and 8,192 columns.
template <int kVariant>
using BlockRowsOf = RowsOf<kVariant == 2 ? 6 : kVariant + 2>;

// Row ((sample * heads + head) * query_blocks + r) * S + s of the scores.
struct BlockRow {
  i64 sample;
  int head;
  int query;        // in its sequence
  const i64* keys;  // the blocks that it sees, head * blocks + block

  __device__ BlockRow(i64 row, const BlockRowsShape& shape)
      : sample(row / shape.block_size / shape.query_blocks / shape.heads),
        head(static_cast<int>(row / shape.block_size / shape.query_blocks % shape.heads)) {
    const i64 r = row / shape.block_size % shape.query_blocks;
    query = static_cast<int>(shape.queries[r] * shape.block_size + row % shape.block_size);
    keys = shape.keys + (head * static_cast<i64>(shape.query_blocks) + r) * shape.seen;
  }

  // Of columns [first, first + 4): the first key's position.
  __device__ i64 key_of(i64 first, const BlockRowsShape& shape) const {
    return keys[first / shape.block_size] % shape.blocks * shape.block_size +
           first % shape.block_size;
  }
  __device__ void drop(const DropoutArguments& d, i64 key, float* values) const {
    float factors[4];
    dropout_factors(d, static_cast<u32>(sample), static_cast<u32>(head), static_cast<u32>(query),
                    static_cast<u32>(key / 4), factors);
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] *= factors[i];
  }
};

template <class T, int kVariant>
__device__ void block_rows(const BlockRowsArguments& a) {
  using Rows = BlockRowsOf<kVariant>;
  constexpr int kValues = 4 * Rows::kVectors;
  __shared__ float shared[kThreads / kWarp];
  const i64 index = Rows::row();
  if (index >= a.shape.rows) return;  // a whole warp, or a whole block
  const BlockRow row(index, a.shape);
  const i64 columns = static_cast<i64>(a.shape.seen) * a.shape.block_size;
  const u8* const mask = a.mask == nullptr ? nullptr : a.mask + row.sample * a.tokens;
  float values[kValues];
  float largest = lowest();
#pragma unroll
  for (int v = 0; v < Rows::kVectors; ++v) {
    const i64 first = Rows::first_key(v);
    load4(static_cast<const T*>(a.scores) + index * columns, first, columns, true, values + 4 * v);
    const i64 key = first < columns ? row.key_of(first, a.shape) : a.tokens;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool is_seen = key + i < a.tokens && (mask == nullptr || mask[key + i] != 0);
      float& value = values[4 * v + i];
      value = is_seen ? value : lowest();
      largest = value > largest ? value : largest;
    }
  }
  largest = Rows::largest(largest, shared);
  const bool is_padding = row.query >= a.tokens || (mask != nullptr && mask[row.query] == 0);
  const bool is_zero = is_padding || largest == lowest();
  float sum = 0.0F;
#pragma unroll
  for (int k = 0; k < kValues; ++k) {
    values[k] = is_zero ? 0.0F : expf(values[k] - largest);
    sum += values[k];
  }
  sum = Rows::sum(sum, shared);
  const float inverse = is_zero ? 0.0F : 1.0F / sum;
#pragma unroll
  for (int v = 0; v < Rows::kVectors; ++v) {
    const i64 first = Rows::first_key(v);
    float* const some = values + 4 * v;
#pragma unroll
    for (int i = 0; i < 4; ++i) some[i] *= inverse;
    if (a.probabilities != nullptr) {
      store4(static_cast<T*>(a.probabilities) + index * columns, first, columns, true, some);
    }
    if (a.dropped == nullptr) continue;
    if (a.dropout.is_on && first < columns) row.drop(a.dropout, row.key_of(first, a.shape), some);
    store4(static_cast<T*>(a.dropped) + index * columns, first, columns, true, some);
  }
}

template <class T, int kVariant>
__device__ void block_rows_backward(const BlockRowsBackwardArguments& a) {
  using Rows = BlockRowsOf<kVariant>;
  constexpr int kValues = 4 * Rows::kVectors;
  __shared__ float shared[kThreads / kWarp];
  const i64 index = Rows::row();
  if (index >= a.shape.rows) return;
  const BlockRow row(index, a.shape);
  const i64 columns = static_cast<i64>(a.shape.seen) * a.shape.block_size;
  const T* const probabilities = static_cast<const T*>(a.probabilities) + index * columns;
  T* const gradients = static_cast<T*>(a.gradient) + index * columns;
  float p[kValues];
  float gradient[kValues];
  float dot = 0.0F;
#pragma unroll
  for (int v = 0; v < Rows::kVectors; ++v) {
    const i64 first = Rows::first_key(v);
    float* const some = gradient + 4 * v;
    load4(probabilities, first, columns, true, p + 4 * v);
    load4(gradients, first, columns, true, some);
    if (a.dropout.is_on && first < columns) row.drop(a.dropout, row.key_of(first, a.shape), some);
#pragma unroll
    for (int i = 0; i < 4; ++i) dot += p[4 * v + i] * some[i];
  }
  dot = Rows::sum(dot, shared);
#pragma unroll
  for (int v = 0; v < Rows::kVectors; ++v) {
    const i64 first = Rows::first_key(v);
    float* const some = gradient + 4 * v;
    if (!Rows::kKeepsTwo) load4(probabilities, first, columns, true, p + 4 * v);
#pragma unroll
    for (int i = 0; i < 4; ++i) some[i] = p[4 * v + i] * (some[i] - dot);
    store4(gradients, first, columns, true, some);
  }
}

}  // namespace finetune::kernels::cuda
