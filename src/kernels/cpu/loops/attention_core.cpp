// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/attention_core.h"

#include <limits>

#include "kernels/cpu/loops/philox.h"
#include "kernels/cpu/loops/vector_math.h"

namespace finetune::kernels {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// The number of a row's query in the sample.
FT_INLINE int64_t query_of(const ScoreTile& tile, int64_t row) {
  return tile.queries == nullptr ? tile.first_query + row : tile.queries[row];
}

// Writes the row's dropout factors to the start of the scratch memory; returns those of the tile's
// keys, or null without dropout. Factors depend on the key's index in the sequence, so they are
// computed from key 0 on.
FT_INLINE const float* make_factors(const ScoreTile& tile, int64_t row) {
  if (!tile.dropout) return nullptr;
  dropout_factors({static_cast<uint32_t>(tile.head << 16 | query_of(tile, row)),
                   tile.dropout->first_position + static_cast<uint32_t>(tile.sample),
                   tile.dropout->layer_and_site, tile.dropout->key, tile.dropout->threshold(),
                   tile.dropout->scale()},
                  tile.first_key + tile.keys, tile.scratch);
  return tile.scratch + tile.first_key;
}

// Sets the scores of keys outside the causal or sliding window to -infinity.
FT_INLINE void hide_keys(const ScoreTile& tile, int64_t row_index, float* row) {
  if (!tile.causal && tile.window == 0) return;
  // index of the query among the tile's keys
  const int64_t query = query_of(tile, row_index) - tile.first_key;
  const int64_t end = tile.causal ? query + 1 : query + tile.window;
  for (int64_t c = end < 0 ? 0 : end; c < tile.keys; ++c) row[c] = kLowest;
  if (tile.window == 0) return;
  const int64_t begin = query - tile.window + 1;
  for (int64_t c = 0; c < begin && c < tile.keys; ++c) row[c] = kLowest;
}

// tanh(x) = (1 - e) / (1 + e) with e = exp(-2x), within 3e-7. Near 0, where 1 - e would lose
// digits, it is the series x - x^3 / 3 + 2 x^5 / 15 - 17 x^7 / 315.
template <int W>
FT_INLINE Lanes<W> hyperbolic_tangent(const Lanes<W>& x) {
  return map(x, [](auto part) FT_INLINE_LAMBDA {
    using Float = decltype(part);
    const Float size = part < 0.0F ? -part : part;
    const Float e = exponential<W>(size * -2.0F);
    const Float far = (1.0F - e) / (1.0F + e);
    const Float square = part * part;
    const Float series =
        1.0F - square * (0.333333333F - square * (0.133333333F - square * 0.0539682540F));
    const Float near = part * series;
    const Float signed_far = part < 0.0F ? -far : far;
    return size < 0.25F ? near : signed_far;
  });
}

// Soft-caps the scores: s becomes c tanh(s / c). If `slopes` is not null, it gets the derivative 1
// - tanh(s / c)^2.
template <int W>
FT_INLINE void cap(const ScoreTile& tile, float* row, float* slopes) {
  for (int64_t c = 0; c < tile.keys; c += kLanes) {
    const int64_t count = tile.keys - c;
    const Lanes<W> t = hyperbolic_tangent(load<W>(row + c, count) * (1.0F / tile.softcap));
    store(t * tile.softcap, count, row + c);
    if (slopes != nullptr) store(Lanes<W>(1.0F) - t * t, count, slopes + c);
  }
}

template <int W>
FT_INLINE Lanes<W> load_scores(const ScoreTile& tile, const float* row, int64_t c) {
  const Lanes<W> x = load<W>(row + c, tile.keys - c, kLowest);
  return tile.key_add == nullptr ? x : x + load<W>(tile.key_add + c, tile.keys - c);
}

struct Denominator {
  float inverse;  // 1 / the sum of a row's exponentials
  float sink;     // the probability of the sink
};

// Overwrites the row with exp(score - maximum).
template <int W>
FT_INLINE Denominator exponentials(const ScoreTile& tile, float* row) {
  Lanes<W> tops(kLowest);
  for (int64_t c = 0; c < tile.keys; c += kLanes) {
    tops = larger(load_scores<W>(tile, row, c), tops);
  }
  // If all keys are masked, the maximum is -infinity: subtracting 0 instead gives zeros, not NaN.
  float top = largest(tops);
  if (tile.sink != nullptr && *tile.sink > top) top = *tile.sink;
  const float shift = top == kLowest ? 0.0F : top;
  Lanes<W> totals(0.0F);
  for (int64_t c = 0; c < tile.keys; c += kLanes) {
    const Lanes<W> e = exponential(load_scores<W>(tile, row, c) - shift);
    totals = totals + e;
    store(e, tile.keys - c, row + c);
  }
  float total = sum(totals);
  float sink = 0.0F;
  if (tile.sink != nullptr) sink = largest(exponential(Lanes<W>(*tile.sink - shift)));
  total += sink;
  const float inverse = total == 0.0F ? 0.0F : 1.0F / total;
  return {inverse, sink * inverse};
}

// scores = softmax(scores) * dropout factors, row by row. Dropout follows the normalisation, as in
// torch.
template <int W>
FT_INLINE void forward(const ScoreTile& tile) {
  for (int64_t r = 0; r < tile.rows; ++r) {
    float* row = tile.scores + r * tile.keys;
    const float* factors = make_factors(tile, r);
    if (tile.softcap != 0.0F) cap<W>(tile, row, nullptr);
    hide_keys(tile, r, row);
    const float inverse_sum = exponentials<W>(tile, row).inverse;
    for (int64_t c = 0; c < tile.keys; c += kLanes) {
      const int64_t count = tile.keys - c;
      Lanes<W> x = load<W>(row + c, count) * inverse_sum;
      if (factors != nullptr) x = x * load<W>(factors + c, count);
      store(x, count, row + c);
    }
  }
}

// With P the probabilities, f the dropout factors and g the gradient of P f: dscores = P (g f -
// sum(P g f)), times 1 - tanh(s / c)^2 where scores are soft-capped. P is computed again from the
// scores, as in the forward pass.
template <int W>
FT_INLINE void backward(const ScoreTile& tile) {
  // Scratch memory of one row, after the dropout factors.
  float* probabilities = tile.scratch + tile.first_key + tile.keys + kDropoutNumbers;
  float* slopes = probabilities + tile.keys;
  for (int64_t r = 0; r < tile.rows; ++r) {
    float* row = tile.scores + r * tile.keys;
    float* gradient_row = tile.gradient + r * tile.keys;
    const float* factors = make_factors(tile, r);
    if (tile.softcap != 0.0F) cap<W>(tile, row, slopes);
    hide_keys(tile, r, row);
    const Denominator denominator = exponentials<W>(tile, row);
    Lanes<W> totals(0.0F);
    for (int64_t c = 0; c < tile.keys; c += kLanes) {
      const int64_t count = tile.keys - c;
      Lanes<W> x = load<W>(row + c, count) * denominator.inverse;
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
    if (tile.sink != nullptr) *tile.of_sink -= denominator.sink * total;
    for (int64_t c = 0; c < tile.keys; c += kLanes) {
      const int64_t count = tile.keys - c;
      store(load<W>(probabilities + c, count) * (load<W>(gradient_row + c, count) - total), count,
            gradient_row + c);
    }
    if (tile.softcap == 0.0F) continue;
    for (int64_t c = 0; c < tile.keys; c += kLanes) {
      const int64_t count = tile.keys - c;
      store(load<W>(gradient_row + c, count) * load<W>(slopes + c, count), count, gradient_row + c);
    }
  }
}

}  // namespace

FT_VECTOR_KERNEL(softmax_dropout, ScoreTile, forward)
FT_VECTOR_KERNEL(softmax_dropout_backward, ScoreTile, backward)

}  // namespace finetune::kernels
