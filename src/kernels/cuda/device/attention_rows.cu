// SPDX-License-Identifier: MIT
// Rows of attention scores: softmax and dropout, forward and backward.
#include "kernels/cuda/device/score_rows.h"

namespace finetune::kernels::cuda {

// A row's sample, head and query.
struct ScoreRow {
  i64 sample;
  int head;
  int query;

  __device__ ScoreRow(i64 row, int heads, int length)
      : sample(row / length / heads),
        head(static_cast<int>(row / length % heads)),
        query(static_cast<int>(row % length)) {}

  __device__ void factors(const DropoutArguments& d, i64 first, float* result) const {
    dropout_factors(d, static_cast<u32>(sample), static_cast<u32>(head), static_cast<u32>(query),
                    static_cast<u32>(first / 4), result);
  }
};

template <class T, int kVariant>
__device__ void attention_rows(const AttentionRowsArguments& a) {
  using Rows = RowsOf<kVariant>;
  constexpr int kValues = 4 * Rows::kVectors;
  __shared__ float shared[kThreads / kWarp];
  const i64 index = Rows::row();
  if (index >= a.rows) return;  // for a whole warp or block
  const ScoreRow row(index, a.heads, a.length);
  const bool has_layout = a.starts != nullptr;
  const i64 start = has_layout ? a.starts[row.sample] - a.first_token : row.sample * a.length;
  const i64 tokens = has_layout ? a.starts[row.sample + 1] - a.starts[row.sample] : a.length;
  // The keys that causal attention and the window allow; masked keys are skipped below.
  int first_seen = 0;
  int last_seen = static_cast<int>(tokens) - 1;
  if (a.is_causal && row.query < last_seen) last_seen = row.query;
  if (a.window != 0) {
    first_seen = row.query - a.window + 1;
    if (row.query + a.window - 1 < last_seen) last_seen = row.query + a.window - 1;
  }
  const bool is_aligned = a.length % 4 == 0;
  float values[kValues];
  float largest = lowest();
#pragma unroll
  for (int v = 0; v < Rows::kVectors; ++v) {
    const i64 first = Rows::first_key(v);
    load4(static_cast<const T*>(a.scores) + index * a.length, first, a.length, is_aligned,
          values + 4 * v);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const i64 key = first + i;
      const bool is_seen =
          key >= first_seen && key <= last_seen && (a.mask == nullptr || a.mask[start + key] != 0);
      float& value = values[4 * v + i];
      value = is_seen ? value : lowest();
      largest = value > largest ? value : largest;
    }
  }
  largest = Rows::largest(largest, shared);
  const bool sees_nothing = largest == lowest();
  float sum = 0.0F;
#pragma unroll
  for (int k = 0; k < kValues; ++k) {
    values[k] = sees_nothing ? 0.0F : expf(values[k] - largest);
    sum += values[k];
  }
  sum = Rows::sum(sum, shared);
  const float inverse = sees_nothing ? 0.0F : 1.0F / sum;
#pragma unroll
  for (int v = 0; v < Rows::kVectors; ++v) {
    const i64 first = Rows::first_key(v);
    float* const some = values + 4 * v;
#pragma unroll
    for (int i = 0; i < 4; ++i) some[i] *= inverse;
    if (a.probabilities != nullptr) {
      store4(static_cast<T*>(a.probabilities) + index * a.length, first, a.length, is_aligned,
             some);
    }
    if (a.dropped == nullptr) continue;
    if (a.dropout.is_on && first < a.length) {
      float factors[4];
      row.factors(a.dropout, first, factors);
#pragma unroll
      for (int i = 0; i < 4; ++i) some[i] *= factors[i];
    }
    store4(static_cast<T*>(a.dropped) + index * a.length, first, a.length, is_aligned, some);
  }
}

// With P the probabilities and g the gradient of P times the dropout factors: dscores = P (g -
// sum(P g)).
template <class T, int kVariant>
__device__ void attention_rows_backward(const AttentionBackwardArguments& a) {
  using Rows = RowsOf<kVariant>;
  constexpr int kValues = 4 * Rows::kVectors;
  __shared__ float shared[kThreads / kWarp];
  const i64 index = Rows::row();
  if (index >= a.rows) return;
  const ScoreRow row(index, a.heads, a.length);
  const bool is_aligned = a.length % 4 == 0;
  T* const gradients = static_cast<T*>(a.gradient) + index * a.length;
  float p[kValues];
  float gradient[kValues];
  float dot = 0.0F;
#pragma unroll
  for (int v = 0; v < Rows::kVectors; ++v) {
    const i64 first = Rows::first_key(v);
    load4(static_cast<const T*>(a.probabilities) + index * a.length, first, a.length, is_aligned,
          p + 4 * v);
    load4(gradients, first, a.length, is_aligned, gradient + 4 * v);
    if (a.dropout.is_on && first < a.length) {
      float factors[4];
      row.factors(a.dropout, first, factors);
#pragma unroll
      for (int i = 0; i < 4; ++i) gradient[4 * v + i] *= factors[i];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) dot += p[4 * v + i] * gradient[4 * v + i];
  }
  dot = Rows::sum(dot, shared);
#pragma unroll
  for (int v = 0; v < Rows::kVectors; ++v) {
#pragma unroll
    for (int i = 0; i < 4; ++i) gradient[4 * v + i] = p[4 * v + i] * (gradient[4 * v + i] - dot);
    store4(gradients, Rows::first_key(v), a.length, is_aligned, gradient + 4 * v);
  }
}

}  // namespace finetune::kernels::cuda
