// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/delta_rule.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/loops/vector_math.h"

namespace finetune::kernels {
namespace {

constexpr float kEpsilon = 1e-6F;  // kDeltaEpsilon
constexpr int64_t kChunk = 16;     // kDeltaChunk

int64_t tiles_of(const DeltaRuleRows& a) { return (a.value_size + kLanes - 1) / kLanes; }
int64_t chunks_of(const DeltaRuleRows& a) { return (a.tokens + kChunk - 1) / kChunk; }
int64_t tile_values(const DeltaRuleRows& a) { return a.size * kLanes; }

// Takes pieces of scratch memory one after the other.
class Pieces {
 public:
  explicit Pieces(float* memory) : memory_(memory) {}
  float* take(int64_t values) {
    float* piece = memory_;
    memory_ += values;
    return piece;
  }

 private:
  float* memory_;
};

// Unit rows times `scale`, and the inverse lengths.
void make_unit_rows(const float* rows, const DeltaRuleRows& a, float scale, float* units,
                    float* inverses) {
  for (int64_t t = 0; t < a.tokens; ++t) {
    const float* row = rows + t * a.stride;
    float squares = 0.0F;
    for (int64_t i = 0; i < a.size; ++i) squares += row[i] * row[i];
    const float inverse = 1.0F / std::sqrt(squares + kEpsilon);
    if (inverses != nullptr) inverses[t] = inverse;
    for (int64_t i = 0; i < a.size; ++i) units[t * a.size + i] = row[i] * inverse * scale;
  }
}

// Of rows that are unit rows u times `scale`: dx = inverse (du - u (u . du)).
void unit_rows_backward(const float* scaled, const float* inverses, const float* gradients,
                        const DeltaRuleRows& a, float scale, float* result) {
  for (int64_t t = 0; t < a.tokens; ++t) {
    const float* row = scaled + t * a.size;
    const float* gradient = gradients + t * a.size;
    float along = 0.0F;
    for (int64_t i = 0; i < a.size; ++i) along += row[i] * gradient[i];
    for (int64_t i = 0; i < a.size; ++i) {
      result[t * a.stride + i] = inverses[t] * (scale * gradient[i] - row[i] / scale * along);
    }
  }
}

// As torch's.
float softplus(float x) { return x > 20.0F ? x : std::log1p(std::exp(x)); }

// Sixteen columns of a head's values.
struct Columns {
  int64_t head, first, count;
};

template <int W>
struct Step {
  Lanes<W> residual;  // v - S^T k, with the decayed S
  Lanes<W> delta;
  Lanes<W> output;
};

// One token: S [size, 16] becomes `next`, which may be the same memory.
template <int W>
FT_INLINE Step<W> step(const DeltaRuleRows& a, const Columns& c, int64_t t, const float* query,
                       const float* key, const float* state, float* next) {
  const int64_t h = t * a.head_stride + c.head;
  const float decay = std::exp(a.decay[h]);
  // Two sums of every second row each, so that an addition need not wait for the one before.
  Lanes<W> even(0.0F);
  Lanes<W> odd(0.0F);
  for (int64_t i = 0; i + 1 < a.size; i += 2) {
    even = even + load_all<W>(state + i * kLanes) * key[i];
    odd = odd + load_all<W>(state + (i + 1) * kLanes) * key[i + 1];
  }
  if (a.size % 2 != 0) {
    even = even + load_all<W>(state + (a.size - 1) * kLanes) * key[a.size - 1];
  }
  Step<W> result;
  const float* value = a.value + t * a.stride + c.head * a.value_size + c.first;
  result.residual = load<W>(value, c.count) - (even + odd) * decay;
  result.delta = result.residual * a.beta[h];
  const Lanes<W> delta = result.delta;
  const auto updated = [&](int64_t i) FT_INLINE_LAMBDA {
    const Lanes<W> s = load_all<W>(state + i * kLanes) * decay + delta * key[i];
    store_all<W>(s, next + i * kLanes);
    return s * query[i];
  };
  even = odd = Lanes<W>(0.0F);
  for (int64_t i = 0; i + 1 < a.size; i += 2) {
    even = even + updated(i);
    odd = odd + updated(i + 1);
  }
  if (a.size % 2 != 0) even = even + updated(a.size - 1);
  result.output = even + odd;
  return result;
}

template <int W>
FT_INLINE void delta_rule_forward(const DeltaRuleRows& a) {
  Pieces pieces(a.scratch);
  float* const queries = pieces.take(a.tokens * a.size);
  float* const keys = pieces.take(a.tokens * a.size);
  float* const state = pieces.take(tile_values(a));
  make_unit_rows(a.query, a, 1.0F / std::sqrt(static_cast<float>(a.size)), queries, nullptr);
  make_unit_rows(a.key, a, 1.0F, keys, nullptr);
  for (int64_t head = 0; head < a.heads; ++head) {
    for (int64_t first = 0; first < a.value_size; first += kLanes) {
      const Columns c = {head, first, std::min<int64_t>(kLanes, a.value_size - first)};
      float* const kept =
          a.state == nullptr ? nullptr : a.state + head * a.size * a.value_size + first;
      for (int64_t i = 0; i < a.size; ++i) {
        const Lanes<W> begin =
            kept == nullptr ? Lanes<W>(0.0F) : load<W>(kept + i * a.value_size, c.count);
        store_all<W>(begin, state + i * kLanes);
      }
      for (int64_t t = 0; t < a.tokens; ++t) {
        const Step<W> at = step<W>(a, c, t, queries + t * a.size, keys + t * a.size, state, state);
        store<W>(at.output, c.count, a.output + t * a.output_stride + head * a.value_size + first);
      }
      if (kept == nullptr) continue;
      for (int64_t i = 0; i < a.size; ++i) {
        store<W>(load_all<W>(state + i * kLanes), c.count, kept + i * a.value_size);
      }
    }
  }
}

// What the backward pass has in its scratch memory.
struct BackwardMemory {
  float *queries, *keys, *query_inverses, *key_inverses;  // [tokens, size], [tokens]
  float *of_queries, *of_keys;                            // of the unit rows, [tokens, size]
  float* begins;                    // [tiles, chunks, size, 16]: states at the begin of chunks
  float* of_states;                 // [tiles, size, 16]
  float* states;                    // [chunk + 1, size, 16]
  float *residuals, *deltas;        // [chunk, 16]
  float *query_lanes, *key_lanes;   // [chunk, size, 16]: sums over tiles, by lanes
  float *beta_lanes, *decay_lanes;  // [chunk, 16]

  BackwardMemory(const DeltaRuleRows& a, float* scratch) {
    Pieces pieces(scratch);
    queries = pieces.take(a.tokens * a.size);
    keys = pieces.take(a.tokens * a.size);
    of_queries = pieces.take(a.tokens * a.size);
    of_keys = pieces.take(a.tokens * a.size);
    query_inverses = pieces.take(a.tokens);
    key_inverses = pieces.take(a.tokens);
    begins = pieces.take(tiles_of(a) * chunks_of(a) * tile_values(a));
    of_states = pieces.take(tiles_of(a) * tile_values(a));
    states = pieces.take((kChunk + 1) * tile_values(a));
    residuals = pieces.take(kChunk * kLanes);
    deltas = pieces.take(kChunk * kLanes);
    query_lanes = pieces.take(kChunk * tile_values(a));
    key_lanes = pieces.take(kChunk * tile_values(a));
    beta_lanes = pieces.take(kChunk * kLanes);
    decay_lanes = pieces.take(kChunk * kLanes);
  }
};

// The states at the begin of each chunk.
template <int W>
FT_INLINE void make_begins(const DeltaRuleRows& a, const BackwardMemory& m, int64_t head) {
  for (int64_t tile = 0; tile < tiles_of(a); ++tile) {
    const int64_t first = tile * kLanes;
    const Columns c = {head, first, std::min<int64_t>(kLanes, a.value_size - first)};
    float* const begins = m.begins + tile * chunks_of(a) * tile_values(a);
    float* const state = m.states;
    std::fill_n(state, tile_values(a), 0.0F);
    for (int64_t t = 0; t < a.tokens; ++t) {
      if (t % kChunk == 0) {
        std::copy_n(state, tile_values(a), begins + t / kChunk * tile_values(a));
      }
      (void)step<W>(a, c, t, m.queries + t * a.size, m.keys + t * a.size, state, state);
    }
  }
}

// One tile of one chunk, backwards: with D the gradient of the state after a token,
//   dq = S do, D += q do^T, dd = D^T k, dv = beta dd, dbeta = dd . (v - S'^T k),
//   dk = D d + S' dm with dm = -beta dd, D' = D + k dm^T, dg = sum D' S', D <- exp(g) D',
// where S' is the decayed state before the token.
template <int W>
FT_INLINE void chunk_backward(const DeltaRuleBackwardRows& all, const BackwardMemory& m,
                              const Columns& c, int64_t chunk, float* of_state) {
  const DeltaRuleRows& a = all.forward;
  const int64_t begin = chunk * kChunk;
  const int64_t end = std::min(a.tokens, begin + kChunk);
  const int64_t tile = c.first / kLanes;
  std::copy_n(m.begins + (tile * chunks_of(a) + chunk) * tile_values(a), tile_values(a), m.states);
  for (int64_t t = begin; t < end; ++t) {
    float* const state = m.states + (t - begin) * tile_values(a);
    const Step<W> at = step<W>(a, c, t, m.queries + t * a.size, m.keys + t * a.size, state,
                               state + tile_values(a));
    store_all<W>(at.residual, m.residuals + (t - begin) * kLanes);
    store_all<W>(at.delta, m.deltas + (t - begin) * kLanes);
  }
  for (int64_t t = end - 1; t >= begin; --t) {
    const int64_t in_chunk = t - begin;
    const int64_t h = t * a.head_stride + c.head;
    const float* const query = m.queries + t * a.size;
    const float* const key = m.keys + t * a.size;
    const float* const before = m.states + in_chunk * tile_values(a);
    const float* const after = before + tile_values(a);
    float* const query_lanes = m.query_lanes + in_chunk * tile_values(a);
    float* const key_lanes = m.key_lanes + in_chunk * tile_values(a);
    const int64_t column = c.head * a.value_size + c.first;
    const Lanes<W> gradient = load<W>(a.output + t * a.output_stride + column, c.count);
    const auto of_delta = [&](int64_t i) FT_INLINE_LAMBDA {
      const int64_t at = i * kLanes;
      store_all<W>(load_all<W>(query_lanes + at) + load_all<W>(after + at) * gradient,
                   query_lanes + at);
      const Lanes<W> d = load_all<W>(of_state + at) + gradient * query[i];
      store_all<W>(d, of_state + at);
      return d * key[i];
    };
    Lanes<W> even(0.0F);
    Lanes<W> odd(0.0F);
    for (int64_t i = 0; i + 1 < a.size; i += 2) {
      even = even + of_delta(i);
      odd = odd + of_delta(i + 1);
    }
    if (a.size % 2 != 0) even = even + of_delta(a.size - 1);
    const Lanes<W> dd = even + odd;
    const float beta = a.beta[h];
    const float decay = std::exp(a.decay[h]);
    const Lanes<W> of_value = dd * beta;
    store<W>(of_value, c.count, all.of_value + t * a.stride + column);
    const Lanes<W> delta = load_all<W>(m.deltas + in_chunk * kLanes);
    store_all<W>(load_all<W>(m.beta_lanes + in_chunk * kLanes) +
                     dd * load_all<W>(m.residuals + in_chunk * kLanes),
                 m.beta_lanes + in_chunk * kLanes);
    const auto of_decay = [&](int64_t i) FT_INLINE_LAMBDA {
      const int64_t at = i * kLanes;
      const Lanes<W> d = load_all<W>(of_state + at);
      const Lanes<W> decayed = load_all<W>(before + at) * decay;
      store_all<W>(load_all<W>(key_lanes + at) + (d * delta - decayed * of_value), key_lanes + at);
      const Lanes<W> of_decayed = d - of_value * key[i];
      store_all<W>(of_decayed * decay, of_state + at);
      return of_decayed * decayed;
    };
    even = odd = Lanes<W>(0.0F);
    for (int64_t i = 0; i + 1 < a.size; i += 2) {
      even = even + of_decay(i);
      odd = odd + of_decay(i + 1);
    }
    if (a.size % 2 != 0) even = even + of_decay(a.size - 1);
    store_all<W>(load_all<W>(m.decay_lanes + in_chunk * kLanes) + even + odd,
                 m.decay_lanes + in_chunk * kLanes);
  }
}

template <int W>
FT_INLINE void delta_rule_backward(const DeltaRuleBackwardRows& all) {
  const DeltaRuleRows& a = all.forward;
  const BackwardMemory m(a, a.scratch);
  const float scale = 1.0F / std::sqrt(static_cast<float>(a.size));
  make_unit_rows(a.query, a, scale, m.queries, m.query_inverses);
  make_unit_rows(a.key, a, 1.0F, m.keys, m.key_inverses);
  std::fill_n(m.of_queries, a.tokens * a.size, 0.0F);
  std::fill_n(m.of_keys, a.tokens * a.size, 0.0F);
  for (int64_t head = 0; head < a.heads; ++head) {
    make_begins<W>(a, m, head);
    std::fill_n(m.of_states, tiles_of(a) * tile_values(a), 0.0F);
    for (int64_t chunk = chunks_of(a) - 1; chunk >= 0; --chunk) {
      std::fill_n(m.query_lanes, kChunk * tile_values(a), 0.0F);
      std::fill_n(m.key_lanes, kChunk * tile_values(a), 0.0F);
      std::fill_n(m.beta_lanes, kChunk * kLanes, 0.0F);
      std::fill_n(m.decay_lanes, kChunk * kLanes, 0.0F);
      for (int64_t tile = 0; tile < tiles_of(a); ++tile) {
        const int64_t first = tile * kLanes;
        const Columns c = {head, first, std::min<int64_t>(kLanes, a.value_size - first)};
        chunk_backward<W>(all, m, c, chunk, m.of_states + tile * tile_values(a));
      }
      const int64_t begin = chunk * kChunk;
      const int64_t end = std::min(a.tokens, begin + kChunk);
      for (int64_t t = begin; t < end; ++t) {
        const int64_t in_chunk = t - begin;
        for (int64_t i = 0; i < a.size; ++i) {
          const int64_t lanes = (in_chunk * a.size + i) * kLanes;
          m.of_queries[t * a.size + i] += sum<W>(load_all<W>(m.query_lanes + lanes));
          m.of_keys[t * a.size + i] += sum<W>(load_all<W>(m.key_lanes + lanes));
        }
        const int64_t h = t * a.head_stride + head;
        all.of_beta[h] = sum<W>(load_all<W>(m.beta_lanes + in_chunk * kLanes));
        all.of_decay[h] = sum<W>(load_all<W>(m.decay_lanes + in_chunk * kLanes));
      }
    }
  }
  unit_rows_backward(m.queries, m.query_inverses, m.of_queries, a, scale, all.of_query);
  unit_rows_backward(m.keys, m.key_inverses, m.of_keys, a, 1.0F, all.of_key);
}

// The sum of a row's taps before the activation.
template <int W>
FT_INLINE Lanes<W> taps(const ConvolutionRows& a, int64_t t, int64_t c) {
  const int64_t count = a.columns - c;
  Lanes<W> y = a.bias == nullptr ? Lanes<W>(0.0F) : load<W>(a.bias + c, count);
  for (int64_t k = 0; k < a.size; ++k) {
    const int64_t source = t - (a.size - 1) + k;
    const float* row = nullptr;
    if (source >= 0) {
      row = a.input + source * a.columns;
    } else if (a.before != nullptr) {
      row = a.before + (source + a.size - 1) * a.columns;
    } else {
      continue;
    }
    y = y + load<W>(a.weight + k * a.columns + c, count) * load<W>(row + c, count);
  }
  return y;
}

template <int W>
FT_INLINE void convolution_forward(const ConvolutionRows& a) {
  for (int64_t t = a.first_row; t < a.last_row; ++t) {
    for (int64_t c = 0; c < a.columns; c += kLanes) {
      Lanes<W> y = taps<W>(a, t, c);
      if (a.has_silu) y = y * sigmoid(y);
      store<W>(y, a.columns - c, a.output + t * a.columns + c);
    }
  }
}

// dy f'(sum), with f'(x) = s (1 + x (1 - s)) for s = sigmoid(x).
template <int W>
FT_INLINE void convolution_sums(const ConvolutionRows& a) {
  if (!a.has_silu) return;
  for (int64_t t = a.first_row; t < a.last_row; ++t) {
    for (int64_t c = 0; c < a.columns; c += kLanes) {
      const Lanes<W> x = taps<W>(a, t, c);
      const Lanes<W> s = sigmoid(x);
      float* const position = a.output + t * a.columns + c;
      const Lanes<W> slope = s * (x * (s * -1.0F + 1.0F) + 1.0F);
      store<W>(load<W>(position, a.columns - c) * slope, a.columns - c, position);
    }
  }
}

template <int W>
FT_INLINE void convolution_backward(const ConvolutionBackwardRows& all) {
  const ConvolutionRows& a = all.forward;
  for (int64_t t = a.first_row; t < a.last_row; ++t) {
    for (int64_t c = 0; c < a.columns; c += kLanes) {
      const int64_t count = a.columns - c;
      Lanes<W> dx(0.0F);
      for (int64_t k = a.size - 1; k >= 0; --k) {  // token t is tap k of a later one
        const int64_t target = t + (a.size - 1) - k;
        if (target >= all.tokens) break;
        dx = dx + load<W>(a.weight + k * a.columns + c, count) *
                      load<W>(a.output + target * a.columns + c, count);
      }
      store<W>(dx, count, all.of_input + t * a.columns + c);
    }
  }
}

struct ConvolutionWeightRows {
  ConvolutionRows rows;
  float* of_weight;
  float* of_bias;
};

template <int W>
FT_INLINE void convolution_weight(const ConvolutionWeightRows& all) {
  const ConvolutionRows& a = all.rows;
  for (int64_t t = a.first_row; t < a.last_row; ++t) {
    const float* const gradient = a.output + t * a.columns;
    for (int64_t k = 0; k < a.size; ++k) {
      const int64_t source = t - (a.size - 1) + k;
      if (source < 0) continue;
      float* const sums = all.of_weight + k * a.columns;
      for (int64_t c = 0; c < a.columns; c += kLanes) {
        const int64_t count = a.columns - c;
        store<W>(load<W>(sums + c, count) + load<W>(gradient + c, count) *
                                                load<W>(a.input + source * a.columns + c, count),
                 count, sums + c);
      }
    }
    if (all.of_bias == nullptr) continue;
    for (int64_t c = 0; c < a.columns; c += kLanes) {
      const int64_t count = a.columns - c;
      store<W>(load<W>(all.of_bias + c, count) + load<W>(gradient + c, count), count,
               all.of_bias + c);
    }
  }
}

}  // namespace

void delta_gates(const DeltaGateRows& all) {
  for (int64_t i = 0; i < all.rows * all.heads; ++i) {
    const int64_t head = i % all.heads;
    all.decay[i] = -std::exp(all.a_log[head]) * softplus(all.a[i] + all.dt_bias[head]);
    all.beta[i] = 1.0F / (1.0F + std::exp(-all.b[i]));
  }
}

void delta_gates_backward(const DeltaGateRows& all, float* of_decay, float* of_beta,
                          float* of_a_log) {
  for (int64_t i = 0; i < all.rows * all.heads; ++i) {
    const int64_t head = i % all.heads;
    of_a_log[i] = of_decay[i] * all.decay[i];
    const float slope = 1.0F / (1.0F + std::exp(-(all.a[i] + all.dt_bias[head])));
    of_decay[i] *= -std::exp(all.a_log[head]) * slope;
    of_beta[i] *= all.beta[i] * (1.0F - all.beta[i]);
  }
}

int64_t delta_rule_scratch(const DeltaRuleRows& a) {
  return 2 * a.tokens * a.size + tile_values(a);
}

int64_t delta_rule_backward_scratch(const DeltaRuleRows& a) {
  return 4 * a.tokens * a.size + 2 * a.tokens +
         (tiles_of(a) * (chunks_of(a) + 1) + kChunk + 1 + 2 * kChunk) * tile_values(a) +
         4 * kChunk * kLanes;
}

FT_VECTOR_KERNEL(delta_rule_rows, DeltaRuleRows, delta_rule_forward)
FT_VECTOR_KERNEL(delta_rule_backward_rows, DeltaRuleBackwardRows, delta_rule_backward)
FT_VECTOR_KERNEL(convolution_rows, ConvolutionRows, convolution_forward)
FT_VECTOR_KERNEL(convolution_sum_rows, ConvolutionRows, convolution_sums)
FT_VECTOR_KERNEL(convolution_backward_rows, ConvolutionBackwardRows, convolution_backward)
FT_VECTOR_KERNEL(convolution_weights, ConvolutionWeightRows, convolution_weight)

void convolution_weight_rows(const ConvolutionRows& rows, float* of_weight, float* of_bias) {
  convolution_weights({rows, of_weight, of_bias});
}

}  // namespace finetune::kernels
