// SPDX-License-Identifier: MIT
// Attention of which no score is ever in memory (Dao 2023, FlashAttention-2, algorithms 1 and 2),
// with a dropout that is a function of the element. A warp has 16 rows of a block's tile of 64, the
// other side's tiles pass through shared memory. Nothing is added by atomic operations: the
// backward pass has a kernel for queries and one for keys and values, which compute the scores
// each.
#include "kernels/cuda/device/tensor_cores.h"

// Blocks of a multiprocessor at once, which limits registers: one warp computes while others wait.
#define FINETUNE_LAUNCH_BOUNDS finetune::kernels::cuda::kAttentionTileThreads, 4

namespace finetune::kernels::cuda {

constexpr int kTile = kAttentionTile;
constexpr int kTileWarps = kTile / 16;

__device__ inline float power_of_2(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}

// A sequence and the part of it that a block computes.
struct TileOfSequence {
  i64 start;  // its first token
  int tokens;
  int first;  // of the tile, in the sequence
  u32 sample;

  __device__ explicit TileOfSequence(const TiledAttentionArguments& a)
      : first(static_cast<int>(blockIdx.x) % a.tiles * kTile),
        sample(blockIdx.x / static_cast<u32>(a.tiles)) {
    const bool has_layout = a.starts != nullptr;
    start = has_layout ? a.starts[sample] : static_cast<i64>(sample) * a.tokens;
    tokens = has_layout ? static_cast<int>(a.starts[sample + 1] - start) : a.tokens;
  }
};

// Lane 4 g + t of a warp (tensor_cores.h).
__device__ inline int lane_g() { return static_cast<int>(threadIdx.x % kWarp) / 4; }
__device__ inline int lane_t() { return static_cast<int>(threadIdx.x) % 4; }

// Rows [first, first + 64) of a head in shared memory, zeros after the sequence's end. The padding
// after each row lets eight rows be read at once.
template <int kSize>
struct Tile {
  static constexpr int kStride = kSize + 8;

  // `head`: the head's values of the sequence's first token; `row`: values of a token.
  __device__ static void load(u16* tile, const u16* head, i64 row, int first, int tokens) {
    constexpr int kVectors = kSize / 8;
#pragma unroll 2  // more take registers that are wanted elsewhere
    for (int i = 0; i < kTile * kVectors / (kTileWarps * kWarp); ++i) {
      const int index = i * kTileWarps * kWarp + static_cast<int>(threadIdx.x);
      const int token = index / kVectors;
      const int column = 8 * (index % kVectors);
      Eight<u16> eight = {};
      if (first + token < tokens) {
        eight.load(head + (first + token) * row + column);
      }
      eight.store(tile + token * kStride + column);
    }
  }

  // The fragments b of tile^T for 8 rows from `token` on as columns, and dimensions [16 s, 16 s +
  // 32) down: s's two registers, then s + 1's.
  __device__ static void rows_as_columns(u32* b, const u16* tile, int token, int s) {
    const int lane = static_cast<int>(threadIdx.x % kWarp);
    load_matrices<false>(b, tile + (token + lane % 8) * kStride + 16 * s + 8 * (lane / 8));
  }
  // The fragments b for 16 rows from `token` on, down, and 16 dimensions from 8 j on as columns:
  // j's two registers, then j + 1's.
  __device__ static void rows_down(u32* b, const u16* tile, int token, int j) {
    const int lane = static_cast<int>(threadIdx.x % kWarp);
    load_matrices<true>(b, tile + (token + lane % 16) * kStride + 8 * j + 8 * (lane / 16));
  }
};

// The fragments a of 16 rows of a head, from global memory; zeros after the sequence's end.
template <int kSize>
__device__ inline void load_rows(u32 (*a)[4], const u16* head, i64 row, int first, int tokens) {
#pragma unroll
  for (int s = 0; s < kSize / 16; ++s) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = first + lane_g() + 8 * (i % 2);
      const int column = 16 * s + 2 * lane_t() + 8 * (i / 2);
      a[s][i] = token < tokens ? *reinterpret_cast<const u32*>(head + token * row + column) : 0U;
    }
  }
}

// c [16, kSize] of a head's rows, times a factor for each of a lane's two rows.
template <class T, int kSize>
__device__ inline void store_rows(u16* head, i64 row, int first, int tokens, const float (*c)[4],
                                  float factor, float factor8) {
#pragma unroll
  for (int j = 0; j < kSize / 8; ++j) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = first + lane_g() + 8 * half;
      const float f = half == 0 ? factor : factor8;
      if (token < tokens) {
        *reinterpret_cast<u32*>(head + token * row + 8 * j + 2 * lane_t()) =
            packed<T>(c[j][2 * half] * f, c[j][2 * half + 1] * f);
      }
    }
  }
}

// Which scores count. Positions are in the sequence.
struct Visibility {
  const u8* mask;  // of the sequence's tokens, or null
  int tokens;
  int is_causal;
  int window;

  __device__ Visibility(const TiledAttentionArguments& a, const TileOfSequence& tile)
      : mask(a.mask == nullptr ? nullptr : a.mask + tile.start),
        tokens(tile.tokens),
        is_causal(a.is_causal),
        window(a.window) {}

  __device__ bool sees(int query, int key) const {
    if (key >= tokens) return false;
    if (is_causal != 0 && key > query) return false;
    if (window != 0 && (key <= query - window || key >= query + window)) return false;
    return mask == nullptr || mask[key] != 0;
  }
  // Whether every query of [query, query + 64) sees every key of [key, key + 64).
  __device__ bool sees_all(int query, int key) const {
    if (mask != nullptr || key + kTile > tokens) return false;
    if (is_causal != 0 && key + kTile - 1 > query) return false;
    return window == 0 || (key > query + kTile - 1 - window && key + kTile - 1 < query + window);
  }
  // The first and last key that queries [first, first + 64) may see.
  __device__ int first_key(int first) const {
    return window != 0 && first >= window ? first - window + 1 : 0;
  }
  __device__ int last_key(int first) const {
    int last = tokens - 1;
    if (is_causal != 0) last = smaller(last, first + kTile - 1);
    return window != 0 ? smaller(last, first + kTile - 1 + window - 1) : last;
  }
  // The first and last query that may see keys [first, first + 64).
  __device__ int first_query(int first) const { return is_causal != 0 ? first : first_key(first); }
  __device__ int last_query(int first) const {
    return window != 0 ? smaller(tokens - 1, first + kTile - 1 + window - 1) : tokens - 1;
  }
  __device__ static int smaller(int a, int b) { return a < b ? a : b; }
};

// Of a lane's values of c, rows queries. Pairs of lanes draw for one row each and exchange halves.
__device__ inline void query_factors(const DropoutArguments& d, u32 sample, u32 head, int query,
                                     int key, float* factors) {
  const bool is_odd = threadIdx.x % 2 != 0;
  const u32 position = static_cast<u32>(query + (is_odd ? 8 : 0));
  u32 c[4];  // of the lane's two keys, which are in one draw
  dropout_words(d, sample, head * 65536U + position, static_cast<u32>(key) / 4, c);
  u32 words[4];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const u32 other = __shfl_xor_sync(0xFFFFFFFFU, is_odd ? c[i] : c[2 + i], 1);
    words[i] = is_odd ? other : c[i];
    words[2 + i] = is_odd ? c[2 + i] : other;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) factors[i] = dropout_factor(d, words[i]);
}

// The same for rows keys and columns queries. Four lanes, whose keys are of one draw, draw for one
// of the values' queries and rows each, and transpose.
__device__ inline void key_factors(const DropoutArguments& d, u32 sample, u32 head, int query,
                                   int key, float* factors) {
  const u32 own = threadIdx.x / 4 % 4;
  const u32 position = static_cast<u32>(query) + own % 2;
  const u32 block = static_cast<u32>(key) / 4 + 2 * (own / 2);
  u32 c[4];
  dropout_words(d, sample, head * 65536U + position, block, c);
  const bool is_upper = own / 2 != 0;
  const bool is_odd = own % 2 != 0;
  u32 x[4];  // words 2 [is upper] and the next of the draws for row g, then for row g + 8
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const u32 other = __shfl_xor_sync(0xFFFFFFFFU, is_upper ? c[i] : c[2 + i], 8);
    x[i] = is_upper ? other : c[i];
    x[2 + i] = is_upper ? c[2 + i] : other;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const u32 other = __shfl_xor_sync(0xFFFFFFFFU, is_odd ? x[2 * half] : x[2 * half + 1], 4);
    factors[2 * half] = dropout_factor(d, is_odd ? other : x[2 * half]);
    factors[2 * half + 1] = dropout_factor(d, is_odd ? x[2 * half + 1] : other);
  }
}

// Sums or maxima over the four lanes that share rows.
__device__ inline float row_sum(float x) {
  x += __shfl_xor_sync(0xFFFFFFFFU, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFFU, x, 2);
}
__device__ inline float row_largest(float x) {
  const float next = __shfl_xor_sync(0xFFFFFFFFU, x, 1);
  x = next > x ? next : x;
  const float other = __shfl_xor_sync(0xFFFFFFFFU, x, 2);
  return other > x ? other : x;
}

// A warp's 16 rows as fragments a of the product with a tile: in registers, or in shared memory
// where registers are few.
struct RowsInRegisters {
  const u32 (*a)[4];
  __device__ const u32* operator()(int s, u32*) const { return a[s]; }
};
template <int kSize>
struct RowsInTile {
  const u16* rows;
  __device__ const u32* operator()(int s, u32* loaded) const {
    const int lane = static_cast<int>(threadIdx.x % kWarp);
    load_matrices<false>(loaded,
                         rows + lane % 16 * Tile<kSize>::kStride + 16 * s + 8 * (lane / 16));
    return loaded;
  }
};

// c [16, 8 * kColumns] = rows tile^T for rows of the tile from `token` on.
template <class T, int kSize, int kColumns, class Rows>
__device__ inline void multiply_rows(float (*c)[4], const Rows& rows, const u16* tile, int token) {
#pragma unroll
  for (int s = 0; s < kSize / 16; s += 2) {
    u32 loaded[2][4];
    const u32* const a = rows(s, loaded[0]);
    const u32* const next = rows(s + 1, loaded[1]);
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      if (s == 0) c[j][0] = c[j][1] = c[j][2] = c[j][3] = 0.0F;
      u32 b[4];
      Tile<kSize>::rows_as_columns(b, tile, token + 8 * j, s);
      multiply_add<T>(c[j], a, b);
      multiply_add<T>(c[j], next, b + 2);
    }
  }
}

// c [16, kSize] += p tile for p [16, 8 * kColumns] and rows of the tile from `token` on.
template <class T, int kSize, int kColumns>
__device__ inline void add_product(float (*c)[4], const float (*p)[4], const u16* tile, int token) {
#pragma unroll
  for (int s = 0; s < kColumns / 2; ++s) {
    const float* const left = p[2 * s];
    const float* const right = p[2 * s + 1];
    const u32 a[4] = {packed<T>(left[0], left[1]), packed<T>(left[2], left[3]),
                      packed<T>(right[0], right[1]), packed<T>(right[2], right[3])};
#pragma unroll
    for (int j = 0; j < kSize / 8; j += 2) {
      u32 b[4];
      Tile<kSize>::rows_down(b, tile, token + 16 * s, j);
      multiply_add<T>(c[j], a, b);
      multiply_add<T>(c[j + 1], a, b + 2);
    }
  }
}

__device__ inline const u16* head_of(const void* x, i64 start, i64 row, int head, int size) {
  return static_cast<const u16*>(x) + start * row + static_cast<i64>(head) * size;
}
__device__ inline u16* head_of(void* x, i64 start, i64 row, int head, int size) {
  return static_cast<u16*>(x) + start * row + static_cast<i64>(head) * size;
}

// The context of 64 queries of a head, and of each query the binary logarithm of its sum of
// exponentials; infinity where it sees no key.
template <class T, int kVariant>
__device__ void tiled_attention(const TiledAttentionArguments& a) {
  constexpr int kSize = 32 << kVariant;
  constexpr int kColumns = 4;  // of 8 keys, at a time
  using Keys = Tile<kSize>;
  alignas(16) __shared__ u16 keys[kTile * Keys::kStride];
  alignas(16) __shared__ u16 values[kTile * Keys::kStride];
  const TileOfSequence tile(a);
  if (tile.first >= tile.tokens) return;  // the whole block
  const int head = static_cast<int>(blockIdx.y);
  const int key_head = head / (a.heads / a.key_heads);
  const i64 row = static_cast<i64>(a.heads) * kSize;
  const i64 key_row = static_cast<i64>(a.key_heads) * kSize;
  const u16* const keys_of = head_of(a.key, tile.start, key_row, key_head, kSize);
  const u16* const values_of = head_of(a.value, tile.start, key_row, key_head, kSize);
  const Visibility visible(a, tile);
  const int first = tile.first + 16 * static_cast<int>(threadIdx.x / kWarp);
  u32 query[kSize / 16][4];
  load_rows<kSize>(query, head_of(a.query, tile.start, row, head, kSize), row, first, tile.tokens);
  float context[kSize / 8][4] = {};
  float largest[2] = {lowest(), lowest()};
  float sum[2] = {};
  const int end = visible.last_key(tile.first);
  for (int of_tile = visible.first_key(tile.first) / kTile * kTile; of_tile <= end;
       of_tile += kTile) {
    __syncthreads();  // all have read the last tiles
    Keys::load(keys, keys_of, key_row, of_tile, tile.tokens);
    Keys::load(values, values_of, key_row, of_tile, tile.tokens);
    __syncthreads();
    const bool sees_all = visible.sees_all(tile.first, of_tile);
#pragma unroll 1
    for (int part = 0; part < kTile; part += 8 * kColumns) {
      const int key = of_tile + part + 2 * lane_t();
      float s[kColumns][4];
      multiply_rows<T, kSize, kColumns>(s, RowsInRegisters{query}, keys, part);
      float top[2] = {largest[0], largest[1]};
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (!sees_all && !visible.sees(first + lane_g() + 8 * (i / 2), key + 8 * j + i % 2)) {
            s[j][i] = lowest();
          }
          top[i / 2] = s[j][i] > top[i / 2] ? s[j][i] : top[i / 2];
        }
      }
      float from[2];  // 0 as long as a row sees nothing
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        top[half] = row_largest(top[half]);
        from[half] = top[half] == lowest() ? 0.0F : top[half] * a.scale;
        const float rescaled = power_of_2(fmaf(largest[half], a.scale, -from[half]));
        largest[half] = top[half];
        sum[half] *= rescaled;
#pragma unroll
        for (int j = 0; j < kSize / 8; ++j) {
          context[j][2 * half] *= rescaled;
          context[j][2 * half + 1] *= rescaled;
        }
      }
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          s[j][i] = power_of_2(fmaf(s[j][i], a.scale, -from[i / 2]));
          sum[i / 2] += s[j][i];
        }
        if (a.dropout.is_on == 0) continue;
        float factors[4];
        query_factors(a.dropout, tile.sample, static_cast<u32>(head), first + lane_g(), key + 8 * j,
                      factors);
#pragma unroll
        for (int i = 0; i < 4; ++i) s[j][i] *= factors[i];
      }
      add_product<T, kSize, kColumns>(context, s, values, part);
    }
  }
  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sum[half] = row_sum(sum[half]);
    inverse[half] = sum[half] == 0.0F ? 0.0F : 1.0F / sum[half];
    const int token = first + lane_g() + 8 * half;
    if (lane_t() == 0 && token < tile.tokens) {
      a.log_sum_exp[head * a.all_tokens + tile.start + token] =
          sum[half] == 0.0F ? -lowest() : fmaf(largest[half], a.scale, log2f(sum[half]));
    }
  }
  store_rows<T, kSize>(head_of(a.context, tile.start, row, head, kSize), row, first, tile.tokens,
                       context, inverse[0], inverse[1]);
}

// With P the probabilities, F dropout's factors and dP = dO V^T: dS = P (F dP - delta) with delta =
// sum(O dO) of a query, which the other kernel reads later, and dQ = dS K.
template <class T, int kVariant>
__device__ void tiled_attention_of_queries(const TiledAttentionArguments& a) {
  constexpr int kSize = 32 << kVariant;
  constexpr int kColumns = 2;  // of 8 keys, at a time
  using Keys = Tile<kSize>;
  alignas(16) __shared__ u16 keys[kTile * Keys::kStride];
  alignas(16) __shared__ u16 values[kTile * Keys::kStride];
  alignas(16) __shared__ u16 gradients[kTile * Keys::kStride];
  const TileOfSequence tile(a);
  if (tile.first >= tile.tokens) return;
  const int head = static_cast<int>(blockIdx.y);
  const int key_head = head / (a.heads / a.key_heads);
  const i64 row = static_cast<i64>(a.heads) * kSize;
  const i64 key_row = static_cast<i64>(a.key_heads) * kSize;
  const u16* const keys_of = head_of(a.key, tile.start, key_row, key_head, kSize);
  const u16* const values_of = head_of(a.value, tile.start, key_row, key_head, kSize);
  const Visibility visible(a, tile);
  const int first = tile.first + 16 * static_cast<int>(threadIdx.x / kWarp);
  u32 query[kSize / 16][4];
  load_rows<kSize>(query, head_of(a.query, tile.start, row, head, kSize), row, first, tile.tokens);
  const u16* const gradients_of = head_of(a.gradient, tile.start, row, head, kSize);
  Keys::load(gradients, gradients_of, row, tile.first, tile.tokens);
  const RowsInTile<kSize> own_gradients = {gradients + (first - tile.first) * Keys::kStride};
  float delta[2] = {};
  {
    u32 gradient[kSize / 16][4];
    u32 context[kSize / 16][4];
    load_rows<kSize>(gradient, gradients_of, row, first, tile.tokens);
    load_rows<kSize>(context,
                     head_of(static_cast<const void*>(a.context), tile.start, row, head, kSize),
                     row, first, tile.tokens);
#pragma unroll
    for (int s = 0; s < kSize / 16; ++s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        delta[i % 2] += half_of<T>(context[s][i], 0) * half_of<T>(gradient[s][i], 0) +
                        half_of<T>(context[s][i], 1) * half_of<T>(gradient[s][i], 1);
      }
    }
  }
  float log_sum_exp[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    delta[half] = row_sum(delta[half]);
    const int token = first + lane_g() + 8 * half;
    const i64 index = head * a.all_tokens + tile.start + token;
    log_sum_exp[half] = token < tile.tokens ? a.log_sum_exp[index] : -lowest();
    if (lane_t() == 0 && token < tile.tokens) a.deltas[index] = delta[half];
  }
  float of_query[kSize / 8][4] = {};
  const int end = visible.last_key(tile.first);
  for (int of_tile = visible.first_key(tile.first) / kTile * kTile; of_tile <= end;
       of_tile += kTile) {
    __syncthreads();
    Keys::load(keys, keys_of, key_row, of_tile, tile.tokens);
    Keys::load(values, values_of, key_row, of_tile, tile.tokens);
    __syncthreads();
    const bool sees_all = visible.sees_all(tile.first, of_tile);
#pragma unroll 1
    for (int part = 0; part < kTile; part += 8 * kColumns) {
      float s[kColumns][4];
      float of_p[kColumns][4];
      multiply_rows<T, kSize, kColumns>(s, RowsInRegisters{query}, keys, part);
      multiply_rows<T, kSize, kColumns>(of_p, own_gradients, values, part);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const int key = of_tile + part + 8 * j + 2 * lane_t();
        float factors[4] = {1.0F, 1.0F, 1.0F, 1.0F};
        if (a.dropout.is_on != 0) {
          query_factors(a.dropout, tile.sample, static_cast<u32>(head), first + lane_g(), key,
                        factors);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          bool sees = true;
          if (!sees_all) sees = visible.sees(first + lane_g() + 8 * (i / 2), key + i % 2);
          const float p = sees ? power_of_2(fmaf(s[j][i], a.scale, -log_sum_exp[i / 2])) : 0.0F;
          s[j][i] = p * fmaf(factors[i], of_p[j][i], -delta[i / 2]);
        }
      }
      add_product<T, kSize, kColumns>(of_query, s, keys, part);
    }
  }
  store_rows<T, kSize>(head_of(a.of_query, tile.start, row, head, kSize), row, first, tile.tokens,
                       of_query, a.gradient_scale, a.gradient_scale);
}

// dV = (F P)^T dO and dK = dS^T Q of 64 keys, over all query heads that read them. The gradients
// may be in the memory of the keys and values, which only this block reads.
template <class T, int kVariant>
__device__ void tiled_attention_of_keys(const TiledAttentionArguments& a) {
  constexpr int kSize = 32 << kVariant;
  constexpr int kColumns = 2;  // of 8 queries, at a time
  using Queries = Tile<kSize>;
  alignas(16) __shared__ u16 queries[kTile * Queries::kStride];
  alignas(16) __shared__ u16 gradients[kTile * Queries::kStride];
  alignas(16) __shared__ u16 keys[kTile * Queries::kStride];
  alignas(16) __shared__ u16 values[kTile * Queries::kStride];
  __shared__ float log_sum_exps[kTile];
  __shared__ float deltas[kTile];
  const TileOfSequence tile(a);
  if (tile.first >= tile.tokens) return;
  const int key_head = static_cast<int>(blockIdx.y);
  const int group = a.heads / a.key_heads;
  const i64 row = static_cast<i64>(a.heads) * kSize;
  const i64 key_row = static_cast<i64>(a.key_heads) * kSize;
  const Visibility visible(a, tile);
  const int first = tile.first + 16 * static_cast<int>(threadIdx.x / kWarp);
  Queries::load(keys, head_of(a.key, tile.start, key_row, key_head, kSize), key_row, tile.first,
                tile.tokens);
  Queries::load(values, head_of(a.value, tile.start, key_row, key_head, kSize), key_row, tile.first,
                tile.tokens);
  const RowsInTile<kSize> own_keys = {keys + (first - tile.first) * Queries::kStride};
  const RowsInTile<kSize> own_values = {values + (first - tile.first) * Queries::kStride};
  float of_key[kSize / 8][4] = {};
  float of_value[kSize / 8][4] = {};
  const int begin = visible.first_query(tile.first) / kTile * kTile;
  const int end = visible.last_query(tile.first);
  for (int head = key_head * group; head < (key_head + 1) * group; ++head) {
    const u16* const queries_of = head_of(a.query, tile.start, row, head, kSize);
    const u16* const gradients_of = head_of(a.gradient, tile.start, row, head, kSize);
    for (int of_tile = begin; of_tile <= end; of_tile += kTile) {
      __syncthreads();
      Queries::load(queries, queries_of, row, of_tile, tile.tokens);
      Queries::load(gradients, gradients_of, row, of_tile, tile.tokens);
      if (threadIdx.x < kTile) {
        const int token = of_tile + static_cast<int>(threadIdx.x);
        const bool is_there = token < tile.tokens;
        const i64 index = head * a.all_tokens + tile.start + token;
        log_sum_exps[threadIdx.x] = is_there ? a.log_sum_exp[index] : -lowest();
        deltas[threadIdx.x] = is_there ? a.deltas[index] : 0.0F;
      }
      __syncthreads();
      const bool sees_all = visible.sees_all(of_tile, tile.first);
#pragma unroll 1
      for (int part = 0; part < kTile; part += 8 * kColumns) {
        float s[kColumns][4];
        float of_p[kColumns][4];
        multiply_rows<T, kSize, kColumns>(s, own_keys, queries, part);
        multiply_rows<T, kSize, kColumns>(of_p, own_values, gradients, part);
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          const int in_tile = part + 8 * j + 2 * lane_t();
          float factors[4] = {1.0F, 1.0F, 1.0F, 1.0F};
          if (a.dropout.is_on != 0) {
            key_factors(a.dropout, tile.sample, static_cast<u32>(head), of_tile + in_tile,
                        first + lane_g(), factors);
          }
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int query = in_tile + i % 2;
            bool sees = true;
            if (!sees_all) sees = visible.sees(of_tile + query, first + lane_g() + 8 * (i / 2));
            const float p = sees ? power_of_2(fmaf(s[j][i], a.scale, -log_sum_exps[query])) : 0.0F;
            s[j][i] = p * factors[i];
            of_p[j][i] = p * fmaf(factors[i], of_p[j][i], -deltas[query]);
          }
        }
        add_product<T, kSize, kColumns>(of_value, s, gradients, part);
        add_product<T, kSize, kColumns>(of_key, of_p, queries, part);
      }
    }
  }
  store_rows<T, kSize>(head_of(a.of_key, tile.start, key_row, key_head, kSize), key_row, first,
                       tile.tokens, of_key, a.gradient_scale, a.gradient_scale);
  store_rows<T, kSize>(head_of(a.of_value, tile.start, key_row, key_head, kSize), key_row, first,
                       tile.tokens, of_value, 1.0F, 1.0F);
}

}  // namespace finetune::kernels::cuda
