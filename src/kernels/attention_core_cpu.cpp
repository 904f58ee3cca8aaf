// SPDX-License-Identifier: MIT
#include "kernels/attention_core_cpu.h"

#include <limits>

#include "kernels/vector_block.h"

namespace finetune::kernels {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

FT_INLINE DropoutRow row_numbers(const ScoreTile& tile, int64_t row) {
  if (!tile.dropout) return {};
  return {static_cast<uint32_t>(tile.head << 16 | (tile.first_query + row)),
          tile.dropout->first_place + static_cast<uint32_t>(tile.sample),
          tile.dropout->layer_and_site,
          tile.dropout->key,
          tile.dropout->threshold(),
          tile.dropout->scale()};
}

FT_INLINE void load_scores(const ScoreTile& tile, const float* row, int64_t column, Block& block) {
  load_block(row + column, tile.keys - column, kLowest, block);
  if (tile.key_add != nullptr) {
    Block add;
    load_block(tile.key_add + column, tile.keys - column, 0.0F, add);
    for (int i = 0; i < kBlock; ++i) block[i] += add[i];
  }
}

// The row becomes exp(score - maximum); returns 1 / their sum.
FT_INLINE float exponentials(const ScoreTile& tile, float* row) {
  Block largest;
  for (int i = 0; i < kBlock; ++i) largest[i] = kLowest;
  for (int64_t c = 0; c < tile.keys; c += kBlock) {
    Block x;
    load_scores(tile, row, c, x);
    for (int i = 0; i < kBlock; ++i) largest[i] = x[i] > largest[i] ? x[i] : largest[i];
  }
  // Where nothing may be attended to, subtracting 0 makes zeros of what would be NaN.
  const float top = maximum_of(largest);
  const float shift = top == kLowest ? 0.0F : top;
  Block totals = {};
  for (int64_t c = 0; c < tile.keys; c += kBlock) {
    Block x;
    load_scores(tile, row, c, x);
    for (int i = 0; i < kBlock; ++i) x[i] = exponential(x[i] - shift);
    for (int i = 0; i < kBlock; ++i) totals[i] += x[i];
    store_block(x, tile.keys - c, row + c);
  }
  const float sum = sum_of(totals);
  return sum == 0.0F ? 0.0F : 1.0F / sum;
}

FT_INLINE void forward(const ScoreTile& tile) {
  for (int64_t r = 0; r < tile.rows; ++r) {
    float* row = tile.scores + r * tile.keys;
    const DropoutRow numbers = row_numbers(tile, r);
    const float inverse_sum = exponentials(tile, row);
    for (int64_t c = 0; c < tile.keys; c += kBlock) {
      Block x;
      load_block(row + c, tile.keys - c, 0.0F, x);
      for (int i = 0; i < kBlock; ++i) x[i] *= inverse_sum;
      if (tile.dropout) {
        Block factors;
        dropout_factors(numbers, c, factors);
        for (int i = 0; i < kBlock; ++i) x[i] *= factors[i];
      }
      store_block(x, tile.keys - c, row + c);
    }
  }
}

// With P the probabilities, f the dropout's factors, g the gradient of P f:
// dscores = P (g f - sum(P g f)).
FT_INLINE void backward(const ScoreTile& tile) {
  for (int64_t r = 0; r < tile.rows; ++r) {
    float* row = tile.scores + r * tile.keys;
    float* gradient_row = tile.gradient + r * tile.keys;
    const DropoutRow numbers = row_numbers(tile, r);
    const float inverse_sum = exponentials(tile, row);
    Block totals = {};
    for (int64_t c = 0; c < tile.keys; c += kBlock) {
      const int64_t count = tile.keys - c;
      Block x;
      Block gradient;
      load_block(row + c, count, 0.0F, x);
      load_block(gradient_row + c, count, 0.0F, gradient);
      for (int i = 0; i < kBlock; ++i) x[i] *= inverse_sum;
      store_block(x, count, tile.scratch + c);
      if (tile.dropout) {
        Block factors;
        dropout_factors(numbers, c, factors);
        for (int i = 0; i < kBlock; ++i) gradient[i] *= factors[i];
        for (int i = 0; i < kBlock; ++i) totals[i] += x[i] * gradient[i];
        for (int i = 0; i < kBlock; ++i) x[i] *= factors[i];
        store_block(gradient, count, gradient_row + c);
      } else {
        for (int i = 0; i < kBlock; ++i) totals[i] += x[i] * gradient[i];
      }
      store_block(x, count, row + c);
    }
    const float total = sum_of(totals);
    for (int64_t c = 0; c < tile.keys; c += kBlock) {
      const int64_t count = tile.keys - c;
      Block x;
      Block gradient;
      load_block(tile.scratch + c, count, 0.0F, x);
      load_block(gradient_row + c, count, 0.0F, gradient);
      for (int i = 0; i < kBlock; ++i) gradient[i] = x[i] * (gradient[i] - total);
      store_block(gradient, count, gradient_row + c);
    }
  }
}

}  // namespace

FT_CLONES void softmax_dropout(const ScoreTile& tile) { forward(tile); }
FT_CLONES void softmax_dropout_backward(const ScoreTile& tile) { backward(tile); }

}  // namespace finetune::kernels
