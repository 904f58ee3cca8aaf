// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/attention_core.h"

#include <limits>

#include "kernels/cpu/loops/philox.h"
#include "kernels/cpu/loops/vector_math.h"

namespace finetune::kernels {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// The row's factors, in the first part of the scratch memory; null without dropout.
FT_INLINE const float* make_factors(const ScoreTile& tile, int64_t row) {
  if (!tile.dropout) return nullptr;
  dropout_factors(
      {static_cast<uint32_t>(tile.head << 16 | (tile.first_query + row)),
       tile.dropout->first_place + static_cast<uint32_t>(tile.sample), tile.dropout->layer_and_site,
       tile.dropout->key, tile.dropout->threshold(), tile.dropout->scale()},
      tile.keys, tile.scratch);
  return tile.scratch;
}

template <int W>
FT_INLINE Lanes<W> load_scores(const ScoreTile& tile, const float* row, int64_t c) {
  const Lanes<W> x = load<W>(row + c, tile.keys - c, kLowest);
  return tile.key_add == nullptr ? x : x + load<W>(tile.key_add + c, tile.keys - c);
}

// The row becomes exp(score - maximum); returns 1 / their sum.
template <int W>
FT_INLINE float exponentials(const ScoreTile& tile, float* row) {
  Lanes<W> tops(kLowest);
  for (int64_t c = 0; c < tile.keys; c += kLanes) {
    tops = larger(load_scores<W>(tile, row, c), tops);
  }
  // Where nothing may be attended to, subtracting 0 makes zeros of what would be NaN.
  const float top = largest(tops);
  const float shift = top == kLowest ? 0.0F : top;
  Lanes<W> totals(0.0F);
  for (int64_t c = 0; c < tile.keys; c += kLanes) {
    const Lanes<W> e = exponential(load_scores<W>(tile, row, c) - shift);
    totals = totals + e;
    store(e, tile.keys - c, row + c);
  }
  const float total = sum(totals);
  return total == 0.0F ? 0.0F : 1.0F / total;
}

template <int W>
FT_INLINE void forward(const ScoreTile& tile) {
  for (int64_t r = 0; r < tile.rows; ++r) {
    float* row = tile.scores + r * tile.keys;
    const float* factors = make_factors(tile, r);
    const float inverse_sum = exponentials<W>(tile, row);
    for (int64_t c = 0; c < tile.keys; c += kLanes) {
      const int64_t count = tile.keys - c;
      Lanes<W> x = load<W>(row + c, count) * inverse_sum;
      if (factors != nullptr) x = x * load<W>(factors + c, count);
      store(x, count, row + c);
    }
  }
}

// With P the probabilities, f the dropout's factors, g the gradient of P f:
// dscores = P (g f - sum(P g f)).
template <int W>
FT_INLINE void backward(const ScoreTile& tile) {
  float* probabilities = tile.scratch + tile.keys + kDropoutNumbers;  // of a row
  for (int64_t r = 0; r < tile.rows; ++r) {
    float* row = tile.scores + r * tile.keys;
    float* gradient_row = tile.gradient + r * tile.keys;
    const float* factors = make_factors(tile, r);
    const float inverse_sum = exponentials<W>(tile, row);
    Lanes<W> totals(0.0F);
    for (int64_t c = 0; c < tile.keys; c += kLanes) {
      const int64_t count = tile.keys - c;
      Lanes<W> x = load<W>(row + c, count) * inverse_sum;
      Lanes<W> gradient = load<W>(gradient_row + c, count);
      store(x, count, probabilities + c);
      if (factors != nullptr) {
        const Lanes<W> factor = load<W>(factors + c, count);
        gradient = gradient * factor;
        totals = totals + x * gradient;
        x = x * factor;
        store(gradient, count, gradient_row + c);
      } else {
        totals = totals + x * gradient;
      }
      store(x, count, row + c);
    }
    const float total = sum(totals);
    for (int64_t c = 0; c < tile.keys; c += kLanes) {
      const int64_t count = tile.keys - c;
      store(load<W>(probabilities + c, count) * (load<W>(gradient_row + c, count) - total), count,
            gradient_row + c);
    }
  }
}

}  // namespace

FT_VECTOR_KERNEL(softmax_dropout, ScoreTile, forward)
FT_VECTOR_KERNEL(softmax_dropout_backward, ScoreTile, backward)

}  // namespace finetune::kernels
