// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/delta_rule.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/loops/vector_math.h"

namespace finetune::kernels {
namespace {

constexpr float kEpsilon = 1e-6F;  // kDeltaEpsilon
constexpr int64_t kChunk = 16;     // kDeltaChunk

constexpr int64_t kSquare = kChunk * kLanes;

static_assert(kChunk == kLanes, "blocks of a chunk are turned in place");

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

// The gated delta rule in chunks of 16 tokens (Yang et al. 2024, section 3.3), for a tile of 16
// columns of the values. With S the state before a chunk, c_t the product of the decays up to token
// t of it, G_ts = c_t / c_s, M_ts = G_ts k_t . k_s (s < t) and N_ts = G_ts q_t . k_s (s <= t):
//   d_t = beta_t r_t, r_t = v_t - c_t S^T k_t - sum_s M_ts d_s,
//   o_t = c_t S^T q_t + sum_s N_ts d_s,   S' = c_16 S + sum_s G_16,s k_s d_s^T.
// Rows of a chunk are stored as [size, 16]: a vector has one value of each token.

// Unit rows times `scale` [chunks, size, 16], and the inverse lengths.
void make_unit_rows(const float* rows, const DeltaRuleRows& a, float scale, float* units,
                    float* inverses) {
  std::fill_n(units, chunks_of(a) * tile_values(a), 0.0F);
  for (int64_t t = 0; t < a.tokens; ++t) {
    const float* row = rows + t * a.stride;
    float squares = 0.0F;
    for (int64_t i = 0; i < a.size; ++i) squares += row[i] * row[i];
    const float inverse = 1.0F / std::sqrt(squares + kEpsilon);
    if (inverses != nullptr) inverses[t] = inverse;
    float* const to = units + t / kChunk * tile_values(a) + t % kChunk;
    for (int64_t i = 0; i < a.size; ++i) to[i * kLanes] = row[i] * inverse * scale;
  }
}

// Of rows that are unit rows u times `scale`: dx = inverse (du - u (u . du)).
void unit_rows_backward(const float* scaled, const float* inverses, const float* gradients,
                        const DeltaRuleRows& a, float scale, float* result) {
  for (int64_t t = 0; t < a.tokens; ++t) {
    const int64_t first = t / kChunk * tile_values(a) + t % kChunk;
    const float* row = scaled + first;
    const float* gradient = gradients + first;
    float along = 0.0F;
    for (int64_t i = 0; i < a.size; ++i) along += row[i * kLanes] * gradient[i * kLanes];
    for (int64_t i = 0; i < a.size; ++i) {
      result[t * a.stride + i] =
          inverses[t] * (scale * gradient[i * kLanes] - row[i * kLanes] / scale * along);
    }
  }
}

// As torch's.
float softplus(float x) { return x > 20.0F ? x : std::log1p(std::exp(x)); }

// to[r] = sum_i rows[i][r] * state[i], for rows [size, 16] and state [size, 16]: [16, 16].
template <int W>
FT_INLINE void multiply(const float* rows, const float* state, int64_t size, float* to) {
  constexpr int64_t kAtOnce = W == 16 ? 16 : 4;  // sums in registers
  for (int64_t first = 0; first < kChunk; first += kAtOnce) {
    Lanes<W> sums[kAtOnce];
#pragma GCC unroll 16
    for (int64_t r = 0; r < kAtOnce; ++r) sums[r] = Lanes<W>(0.0F);
    for (int64_t i = 0; i < size; ++i) {
      const Lanes<W> s = load_all<W>(state + i * kLanes);
#pragma GCC unroll 16
      for (int64_t r = 0; r < kAtOnce; ++r) sums[r] = sums[r] + s * rows[i * kLanes + first + r];
    }
#pragma GCC unroll 16
    for (int64_t r = 0; r < kAtOnce; ++r) store_all<W>(sums[r], to + (first + r) * kLanes);
  }
}

// to[i] = factor * to[i] + sum_r rows[i][r] * values[r], for rows [size, 16] and values [16, 16].
template <int W>
FT_INLINE void add_product(const float* rows, const float* values, float factor, int64_t size,
                           float* to) {
  constexpr int64_t kAtOnce = W == 16 ? 16 : 4;  // values in registers
  for (int64_t first = 0; first < kChunk; first += kAtOnce) {
    const float own = first == 0 ? factor : 1.0F;
    Lanes<W> x[kAtOnce];
#pragma GCC unroll 16
    for (int64_t r = 0; r < kAtOnce; ++r) x[r] = load_all<W>(values + (first + r) * kLanes);
    for (int64_t i = 0; i < size; ++i) {
      const float* const row = rows + i * kLanes + first;
      // Two sums, so that an addition need not wait for the one before.
      Lanes<W> even = load_all<W>(to + i * kLanes) * own;
      Lanes<W> odd = x[1] * row[1];
      even = even + x[0] * row[0];
#pragma GCC unroll 16
      for (int64_t r = 2; r < kAtOnce; r += 2) {
        even = even + x[r] * row[r];
        odd = odd + x[r + 1] * row[r + 1];
      }
      store_all<W>(even + odd, to + i * kLanes);
    }
  }
}

// The rows of [16, 16] times factors, as columns.
void turn(const float* from, const float* factors, float* to) {
  for (int64_t r = 0; r < kChunk; ++r) {
    for (int64_t c = 0; c < kLanes; ++c) to[c * kLanes + r] = from[r * kLanes + c] * factors[r];
  }
}

// Each token's sum of products of rows [size, 16].
template <int W>
FT_INLINE void dot_rows(const float* a, const float* b, int64_t size, float* to) {
  Lanes<W> sums(0.0F);
  for (int64_t i = 0; i < size; ++i) {
    sums = sums + load_all<W>(a + i * kLanes) * load_all<W>(b + i * kLanes);
  }
  store_all<W>(sums, to);
}

// What a chunk of a head needs apart from its state, [16, 16] and [16] each; zero for tokens that
// are not there.
struct ChunkFactors {
  float *ratios, *keys, *queries;  // G, M and N
  float *decays, *rest, *betas;    // c_t, G_16,t and beta_t
  int64_t tokens;

  [[nodiscard]] float last() const { return decays[tokens - 1]; }
  static constexpr int64_t kValues = 3 * kSquare + 3 * kChunk;
};

// The parts of all chunks.
struct Chunks {
  const DeltaRuleRows& a;
  float *queries, *keys;         // unit rows, [chunks, size, 16]
  float *key_dots, *query_dots;  // [chunks, 16, 16]: k_t . k_s and q_t . k_s
  float* factors;                // of a head

  Chunks(const DeltaRuleRows& rows, Pieces& pieces)
      : a(rows),
        queries(pieces.take(chunks_of(rows) * tile_values(rows))),
        keys(pieces.take(chunks_of(rows) * tile_values(rows))),
        key_dots(pieces.take(chunks_of(rows) * kSquare)),
        query_dots(pieces.take(chunks_of(rows) * kSquare)),
        factors(pieces.take(chunks_of(rows) * ChunkFactors::kValues)) {}
  static int64_t values(const DeltaRuleRows& rows) {
    return chunks_of(rows) * (2 * tile_values(rows) + 2 * kSquare + ChunkFactors::kValues);
  }

  [[nodiscard]] const float* query(int64_t chunk) const { return queries + chunk * tile_values(a); }
  [[nodiscard]] const float* key(int64_t chunk) const { return keys + chunk * tile_values(a); }
  [[nodiscard]] ChunkFactors at(int64_t chunk) const {
    float* const f = factors + chunk * ChunkFactors::kValues;
    return {.ratios = f,
            .keys = f + kSquare,
            .queries = f + 2 * kSquare,
            .decays = f + 3 * kSquare,
            .rest = f + 3 * kSquare + kChunk,
            .betas = f + 3 * kSquare + 2 * kChunk,
            .tokens = std::min(kChunk, a.tokens - chunk * kChunk)};
  }

  template <int W>
  FT_INLINE void make_dots() const {
    for (int64_t chunk = 0; chunk < chunks_of(a); ++chunk) {
      multiply<W>(key(chunk), key(chunk), a.size, key_dots + chunk * kSquare);
      multiply<W>(query(chunk), key(chunk), a.size, query_dots + chunk * kSquare);
    }
  }

  void make_factors(int64_t head) const {
    for (int64_t chunk = 0; chunk < chunks_of(a); ++chunk) {
      const ChunkFactors f = at(chunk);
      std::fill_n(f.ratios, ChunkFactors::kValues, 0.0F);
      for (int64_t t = 0; t < f.tokens; ++t) {
        const int64_t h = (chunk * kChunk + t) * a.head_stride + head;
        const float decay = std::exp(a.decay[h]);
        f.betas[t] = a.beta[h];
        f.decays[t] = t == 0 ? decay : f.decays[t - 1] * decay;
        float* const ratios = f.ratios + t * kLanes;
        for (int64_t s = 0; s < t; ++s) ratios[s] = ratios[s - kLanes] * decay;
        ratios[t] = 1.0F;
        const int64_t row = chunk * kSquare + t * kLanes;
        for (int64_t s = 0; s <= t; ++s) {
          if (s < t) f.keys[t * kLanes + s] = ratios[s] * key_dots[row + s];
          f.queries[t * kLanes + s] = ratios[s] * query_dots[row + s];
        }
      }
      std::copy_n(f.ratios + (f.tokens - 1) * kLanes, f.tokens, f.rest);
    }
  }
};

// Sixteen columns of a head's values.
struct Columns {
  int64_t head, first, count;

  [[nodiscard]] int64_t of(const DeltaRuleRows& a) const { return head * a.value_size + first; }
};

Columns columns_of(const DeltaRuleRows& a, int64_t head, int64_t tile) {
  const int64_t first = tile * kLanes;
  return {head, first, std::min<int64_t>(kLanes, a.value_size - first)};
}

// residuals[t] = r_t, for the state before the chunk; deltas[t] = d_t.
template <int W>
FT_INLINE void solve_chunk(const Chunks& all, const Columns& c, int64_t chunk, const float* state,
                           float* residuals, float* deltas) {
  const DeltaRuleRows& a = all.a;
  const ChunkFactors f = all.at(chunk);
  float of_keys[kSquare];
  multiply<W>(all.key(chunk), state, a.size, of_keys);
  for (int64_t t = 0; t < kChunk; ++t) {
    Lanes<W> residual(0.0F);
    if (t < f.tokens) {
      const float* const value = a.value + (chunk * kChunk + t) * a.stride + c.of(a);
      residual = load<W>(value, c.count) - load_all<W>(of_keys + t * kLanes) * f.decays[t];
      for (int64_t s = 0; s < t; ++s) {
        residual = residual - load_all<W>(deltas + s * kLanes) * f.keys[t * kLanes + s];
      }
    }
    store_all<W>(residual, residuals + t * kLanes);
    store_all<W>(residual * f.betas[t], deltas + t * kLanes);
  }
}

// The state after the chunk.
template <int W>
FT_INLINE void advance(const Chunks& all, int64_t chunk, const float* deltas, float* state) {
  const ChunkFactors f = all.at(chunk);
  float rest[kSquare];
  for (int64_t t = 0; t < kChunk; ++t) {
    store_all<W>(load_all<W>(deltas + t * kLanes) * f.rest[t], rest + t * kLanes);
  }
  add_product<W>(all.key(chunk), rest, f.last(), all.a.size, state);
}

template <int W>
FT_INLINE void delta_rule_forward(const DeltaRuleRows& a) {
  Pieces pieces(a.scratch);
  const Chunks all(a, pieces);
  float* const state = pieces.take(tile_values(a));
  make_unit_rows(a.query, a, 1.0F / std::sqrt(static_cast<float>(a.size)), all.queries, nullptr);
  make_unit_rows(a.key, a, 1.0F, all.keys, nullptr);
  all.make_dots<W>();
  for (int64_t head = 0; head < a.heads; ++head) {
    all.make_factors(head);
    for (int64_t tile = 0; tile < tiles_of(a); ++tile) {
      const Columns c = columns_of(a, head, tile);
      float* const kept =
          a.state == nullptr ? nullptr : a.state + head * a.size * a.value_size + c.first;
      for (int64_t i = 0; i < a.size; ++i) {
        const Lanes<W> begin =
            kept == nullptr ? Lanes<W>(0.0F) : load<W>(kept + i * a.value_size, c.count);
        store_all<W>(begin, state + i * kLanes);
      }
      for (int64_t chunk = 0; chunk < chunks_of(a); ++chunk) {
        const ChunkFactors f = all.at(chunk);
        float residuals[kSquare], deltas[kSquare], of_queries[kSquare];
        solve_chunk<W>(all, c, chunk, state, residuals, deltas);
        multiply<W>(all.query(chunk), state, a.size, of_queries);
        for (int64_t t = 0; t < f.tokens; ++t) {
          Lanes<W> output = load_all<W>(of_queries + t * kLanes) * f.decays[t];
          for (int64_t s = 0; s <= t; ++s) {
            output = output + load_all<W>(deltas + s * kLanes) * f.queries[t * kLanes + s];
          }
          store<W>(output, c.count, a.output + (chunk * kChunk + t) * a.output_stride + c.of(a));
        }
        advance<W>(all, chunk, deltas, state);
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
  float *query_inverses, *key_inverses;  // [tokens]
  float *of_queries, *of_keys;           // of the unit rows, [chunks, size, 16]
  float* begins;                         // [tiles, chunks, size, 16]: states before chunks
  float* residuals;                      // [tiles, chunks, 16, 16]
  float* of_states;                      // [tiles, size, 16]
  float* state;                          // [size, 16]
  // Of a chunk of a head, from the states and from the other tokens: [size, 16].
  float *of_query, *of_key_by_delta, *of_key;

  BackwardMemory(const DeltaRuleRows& a, Pieces& pieces)
      : query_inverses(pieces.take(a.tokens)),
        key_inverses(pieces.take(a.tokens)),
        of_queries(pieces.take(chunks_of(a) * tile_values(a))),
        of_keys(pieces.take(chunks_of(a) * tile_values(a))),
        begins(pieces.take(tiles_of(a) * chunks_of(a) * tile_values(a))),
        residuals(pieces.take(tiles_of(a) * chunks_of(a) * kSquare)),
        of_states(pieces.take(tiles_of(a) * tile_values(a))),
        state(pieces.take(tile_values(a))),
        of_query(pieces.take(tile_values(a))),
        of_key_by_delta(pieces.take(tile_values(a))),
        of_key(pieces.take(tile_values(a))) {}
  static int64_t values(const DeltaRuleRows& a) {
    return 2 * a.tokens +
           (2 * chunks_of(a) + tiles_of(a) * (chunks_of(a) + 1) + 4) * tile_values(a) +
           tiles_of(a) * chunks_of(a) * kSquare;
  }
};

// The states before each chunk, and the residuals.
template <int W>
FT_INLINE void make_begins(const Chunks& all, const BackwardMemory& m, int64_t head) {
  const DeltaRuleRows& a = all.a;
  for (int64_t tile = 0; tile < tiles_of(a); ++tile) {
    std::fill_n(m.state, tile_values(a), 0.0F);
    for (int64_t chunk = 0; chunk < chunks_of(a); ++chunk) {
      const int64_t index = tile * chunks_of(a) + chunk;
      std::copy_n(m.state, tile_values(a), m.begins + index * tile_values(a));
      float deltas[kSquare];
      solve_chunk<W>(all, columns_of(a, head, tile), chunk, m.state, m.residuals + index * kSquare,
                     deltas);
      advance<W>(all, chunk, deltas, m.state);
    }
  }
}

// Of a chunk of a head, summed over tiles.
struct ChunkSums {
  float of_queries[kSquare] = {};  // do_t . d_s
  float of_keys[kSquare] = {};     // -b_t . d_s
  float betas[kSquare] = {};       // by lanes
  float of_last[kLanes] = {};      // by lanes: of ln c_16
};

// One tile of one chunk. With D the gradient of the state after it and do that of the outputs, and
// l, b the gradients of d and v:
//   l_t = G_16,t D^T k_t + sum_u>=t N_ut do_u - sum_u>t M_ut b_u,   b_t = beta_t l_t,
//   D = c_16 D + sum_t c_t (q_t do_t^T - k_t b_t^T),
//   dq_t = c_t S do_t + ..., dk_t = G_16,t D d_t - c_t S b_t + ..., where "..." are sums over other
// tokens, for which `sums` has the products.
template <int W>
FT_INLINE void tile_backward(const DeltaRuleBackwardRows& rows, const Chunks& all,
                             const BackwardMemory& m, const Columns& c, int64_t chunk,
                             ChunkSums& sums) {
  const DeltaRuleRows& a = all.a;
  const ChunkFactors f = all.at(chunk);
  const int64_t tile = c.first / kLanes;
  const int64_t index = tile * chunks_of(a) + chunk;
  const float* const begin = m.begins + index * tile_values(a);
  const float* const residuals = m.residuals + index * kSquare;
  float* const of_state = m.of_states + tile * tile_values(a);
  float gradients[kSquare] = {}, of_values[kSquare] = {}, deltas[kSquare] = {};
  for (int64_t t = 0; t < f.tokens; ++t) {
    const float* const row = a.output + (chunk * kChunk + t) * a.output_stride + c.of(a);
    store_all<W>(load<W>(row, c.count), gradients + t * kLanes);
    store_all<W>(load_all<W>(residuals + t * kLanes) * f.betas[t], deltas + t * kLanes);
  }
  float of_deltas[kSquare];
  multiply<W>(all.key(chunk), of_state, a.size, of_deltas);
  for (int64_t t = f.tokens - 1; t >= 0; --t) {
    Lanes<W> of_delta = load_all<W>(of_deltas + t * kLanes) * f.rest[t];
    for (int64_t u = t; u < f.tokens; ++u) {
      of_delta = of_delta + load_all<W>(gradients + u * kLanes) * f.queries[u * kLanes + t];
      of_delta = of_delta - load_all<W>(of_values + u * kLanes) * f.keys[u * kLanes + t];
    }
    const Lanes<W> of_value = of_delta * f.betas[t];
    store_all<W>(of_value, of_values + t * kLanes);
    const int64_t token = (chunk * kChunk + t) * a.stride + c.of(a);
    store<W>(of_value, c.count, rows.of_value + token);
    const Lanes<W> residual = load_all<W>(residuals + t * kLanes);
    float* const betas = sums.betas + t * kLanes;
    store_all<W>(load_all<W>(betas) + of_delta * residual, betas);
  }
  float ones[kChunk], minus[kChunk];
  for (int64_t t = 0; t < kChunk; ++t) {
    ones[t] = 1.0F;
    minus[t] = -f.decays[t];
  }
  float turned[kSquare];
  turn(gradients, f.decays, turned);
  add_product<W>(begin, turned, 1.0F, a.size, m.of_query);
  turn(of_values, minus, turned);
  add_product<W>(begin, turned, 1.0F, a.size, m.of_key);
  turn(deltas, f.rest, turned);
  add_product<W>(of_state, turned, 1.0F, a.size, m.of_key_by_delta);
  turn(deltas, ones, turned);
  add_product<W>(gradients, turned, 1.0F, kChunk, sums.of_queries);
  for (int64_t t = 0; t < kChunk; ++t) {  // from here on with their decays
    const Lanes<W> of_value = load_all<W>(of_values + t * kLanes);
    store_all<W>(Lanes<W>(0.0F) - of_value, of_values + t * kLanes);
    store_all<W>(load_all<W>(gradients + t * kLanes) * f.decays[t], gradients + t * kLanes);
  }
  add_product<W>(of_values, turned, 1.0F, kChunk, sums.of_keys);
  for (int64_t t = 0; t < kChunk; ++t) {
    store_all<W>(load_all<W>(of_values + t * kLanes) * f.decays[t], of_values + t * kLanes);
  }
  Lanes<W> along(0.0F);
  for (int64_t i = 0; i < a.size; ++i) {
    along = along + load_all<W>(of_state + i * kLanes) * load_all<W>(begin + i * kLanes);
  }
  store_all<W>(load_all<W>(sums.of_last) + along * f.last(), sums.of_last);
  add_product<W>(all.query(chunk), gradients, f.last(), a.size, of_state);
  add_product<W>(all.key(chunk), of_values, 1.0F, a.size, of_state);
}

// What a chunk's sums add to the gradients of its rows and gates.
template <int W>
FT_INLINE void chunk_backward(const DeltaRuleBackwardRows& rows, const Chunks& all,
                              const BackwardMemory& m, int64_t head, int64_t chunk,
                              ChunkSums& sums) {
  const DeltaRuleRows& a = all.a;
  const ChunkFactors f = all.at(chunk);
  // Of ln c_t by queries and keys, and of ln G_16,t: parts of the gradients of gates.
  float by_query[kChunk], by_key[kChunk], by_delta[kChunk];
  dot_rows<W>(all.query(chunk), m.of_query, a.size, by_query);
  dot_rows<W>(all.key(chunk), m.of_key, a.size, by_key);
  dot_rows<W>(all.key(chunk), m.of_key_by_delta, a.size, by_delta);
  // What goes past token t is multiplied by its decay. Nothing is subtracted here, so that a
  // gradient is as small as the decay.
  float after = sum<W>(load_all<W>(sums.of_last)), before = 0.0F;
  float of_decays[kChunk] = {};
  for (int64_t t = 0; t < f.tokens; ++t) {
    of_decays[t] = before;
    before += by_delta[t];
    for (int64_t u = t; u < f.tokens; ++u) {
      for (int64_t s = 0; s < t; ++s) {
        const int64_t at = u * kLanes + s;
        of_decays[t] += sums.of_queries[at] * f.queries[at] + sums.of_keys[at] * f.keys[at];
      }
    }
  }
  for (int64_t t = f.tokens - 1; t >= 0; --t) {
    const int64_t h = (chunk * kChunk + t) * a.head_stride + head;
    after += by_query[t] + by_key[t];
    rows.of_decay[h] = of_decays[t] + after;
    rows.of_beta[h] = sum<W>(load_all<W>(sums.betas + t * kLanes));
  }
  // Of q_t . k_s, and of k_t . k_s both ways.
  float of_dots[kSquare] = {}, turned[kSquare] = {}, of_key_dots[kSquare] = {};
  for (int64_t t = 0; t < f.tokens; ++t) {
    for (int64_t s = 0; s <= t; ++s) {
      const int64_t at = t * kLanes + s, back = s * kLanes + t;
      of_dots[at] = turned[back] = sums.of_queries[at] * f.ratios[at];
      if (s < t) of_key_dots[at] = of_key_dots[back] = sums.of_keys[at] * f.ratios[at];
    }
  }
  add_product<W>(all.key(chunk), turned, 1.0F, a.size, m.of_query);
  add_product<W>(all.query(chunk), of_dots, 1.0F, a.size, m.of_key);
  add_product<W>(all.key(chunk), of_key_dots, 1.0F, a.size, m.of_key);
  float* const of_queries = m.of_queries + chunk * tile_values(a);
  float* const of_keys = m.of_keys + chunk * tile_values(a);
  for (int64_t i = 0; i < tile_values(a); ++i) {
    of_queries[i] += m.of_query[i];
    of_keys[i] += m.of_key[i] + m.of_key_by_delta[i];
  }
}

template <int W>
FT_INLINE void delta_rule_backward(const DeltaRuleBackwardRows& rows) {
  const DeltaRuleRows& a = rows.forward;
  Pieces pieces(a.scratch);
  const Chunks all(a, pieces);
  const BackwardMemory m(a, pieces);
  const float scale = 1.0F / std::sqrt(static_cast<float>(a.size));
  make_unit_rows(a.query, a, scale, all.queries, m.query_inverses);
  make_unit_rows(a.key, a, 1.0F, all.keys, m.key_inverses);
  all.make_dots<W>();
  std::fill_n(m.of_queries, chunks_of(a) * tile_values(a), 0.0F);
  std::fill_n(m.of_keys, chunks_of(a) * tile_values(a), 0.0F);
  for (int64_t head = 0; head < a.heads; ++head) {
    all.make_factors(head);
    make_begins<W>(all, m, head);
    std::fill_n(m.of_states, tiles_of(a) * tile_values(a), 0.0F);
    for (int64_t chunk = chunks_of(a) - 1; chunk >= 0; --chunk) {
      ChunkSums sums;
      for (float* of : {m.of_query, m.of_key, m.of_key_by_delta}) {
        std::fill_n(of, tile_values(a), 0.0F);
      }
      for (int64_t tile = 0; tile < tiles_of(a); ++tile) {
        tile_backward<W>(rows, all, m, columns_of(a, head, tile), chunk, sums);
      }
      chunk_backward<W>(rows, all, m, head, chunk, sums);
    }
  }
  unit_rows_backward(all.queries, m.query_inverses, m.of_queries, a, scale, rows.of_query);
  unit_rows_backward(all.keys, m.key_inverses, m.of_keys, a, 1.0F, rows.of_key);
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

int64_t delta_rule_scratch(const DeltaRuleRows& a) { return Chunks::values(a) + tile_values(a); }

int64_t delta_rule_backward_scratch(const DeltaRuleRows& a) {
  return Chunks::values(a) + BackwardMemory::values(a);
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
