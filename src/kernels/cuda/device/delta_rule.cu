// SPDX-License-Identifier: MIT
// The gated delta rule (finetune/kernels/delta_rule.h). A block has 32 columns of a head's state: a
// thread holds every eighth row of one column in registers (variants 0, 1 and 2: 8, 16 or 32 rows)
// and goes through the tokens of one sequence.
#include "kernels/cuda/device/common.h"

namespace finetune::kernels::cuda {

constexpr int kStateGroups = kThreads / kWarp;  // threads of a column

// Where a block is.
struct StateBlock {
  i64 sequence, head, key_head, first, count;  // tokens [first, first + count)
  i64 column;                                  // of this thread; may lie beyond the last one
  int lane, group;

  __device__ explicit StateBlock(const DeltaRuleArguments& a)
      : sequence(blockIdx.x / a.heads),
        head(blockIdx.x % a.heads),
        key_head(head / (a.heads / a.key_heads)),
        first(a.starts == nullptr ? sequence * a.tokens : a.starts[sequence]),
        count((a.starts == nullptr ? first + a.tokens : a.starts[sequence + 1]) - first),
        column(static_cast<i64>(blockIdx.y) * kWarp + threadIdx.x % kWarp),
        lane(static_cast<int>(threadIdx.x) % kWarp),
        group(static_cast<int>(threadIdx.x) / kWarp) {}
};

// The inverse lengths of queries and keys, [rows, 2, key_heads]: a warp for each. The first one of
// a row also makes the gates of its heads.
template <class T, int kVariant>
__device__ void unit_rows(const DeltaRuleArguments& a) {
  const i64 index = static_cast<i64>(blockIdx.x) * kStateGroups + threadIdx.x / kWarp;
  if (index >= a.rows * 2 * a.key_heads) return;  // a whole warp
  const i64 row = index / (2 * a.key_heads);
  const T* const values =
      static_cast<const T*>(a.mixed) + row * a.columns + index % (2 * a.key_heads) * a.key_size;
  float squares = 0.0F;
  for (int i = static_cast<int>(threadIdx.x) % kWarp; i < a.key_size; i += kWarp) {
    const float x = widen(values[i]);
    squares += x * x;
  }
  squares = warp_sum(squares);
  if (threadIdx.x % kWarp == 0) a.inverses[index] = 1.0F / sqrtf(squares + a.epsilon);
  if (index % (2 * a.key_heads) != 0) return;
  for (i64 head = threadIdx.x % kWarp; head < a.heads; head += kWarp) {
    const i64 at = row * a.heads + head;
    const float x = widen(static_cast<const T*>(a.a)[at]) + a.dt_bias[head];
    const float softplus = x > 20.0F ? x : log1pf(expf(x));
    a.decay[at] = -expf(a.a_log[head]) * softplus;
    a.beta[at] = 1.0F / (1.0F + expf(-widen(static_cast<const T*>(a.b)[at])));
  }
}

// The unit rows of a token, the query's divided by sqrt(Dk).
template <class T>
__device__ inline void load_unit_rows(const DeltaRuleArguments& a, const StateBlock& b, i64 row,
                                      float* query, float* key) {
  const T* const values = static_cast<const T*>(a.mixed) + row * a.columns;
  const float* const inverses = a.inverses + row * 2 * a.key_heads + b.key_head;
  for (int i = static_cast<int>(threadIdx.x); i < a.key_size; i += static_cast<int>(blockDim.x)) {
    query[i] = widen(values[b.key_head * a.key_size + i]) * inverses[0] * a.scale;
    key[i] = widen(values[(a.key_heads + b.key_head) * a.key_size + i]) * inverses[a.key_heads];
  }
}

template <class T>
__device__ inline float load_value(const DeltaRuleArguments& a, const StateBlock& b, i64 row) {
  if (b.column >= a.value_size) return 0.0F;
  const T* const values =
      static_cast<const T*>(a.mixed) + row * a.columns + 2 * a.key_heads * a.key_size;
  return widen(values[b.head * a.value_size + b.column]);
}

// Sums over the threads of a column, in their order. All threads of the block call it.
__device__ inline float column_sum(float x, float* shared) {
  shared[threadIdx.x] = x;
  __syncthreads();
  float sum = 0.0F;
#pragma unroll
  for (int group = 0; group < kStateGroups; ++group) {
    sum += shared[group * kWarp + threadIdx.x % kWarp];
  }
  __syncthreads();
  return sum;
}

template <int kRows>
struct State {
  float at[kRows];  // rows group, group + 8, ...

  __device__ void load(const float* from, const DeltaRuleArguments& a, const StateBlock& b) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const i64 row = b.group + static_cast<i64>(r) * kStateGroups;
      const bool inside = row < a.key_size && b.column < a.value_size;
      at[r] = from != nullptr && inside ? from[row * a.value_size + b.column] : 0.0F;
    }
  }
  __device__ void store(float* to, const DeltaRuleArguments& a, const StateBlock& b) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const i64 row = b.group + static_cast<i64>(r) * kStateGroups;
      if (row < a.key_size && b.column < a.value_size) to[row * a.value_size + b.column] = at[r];
    }
  }
  // Sum of this thread's rows times those of x.
  __device__ float along(const float* x, const DeltaRuleArguments& a, const StateBlock& b) const {
    float sum = 0.0F;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = b.group + r * kStateGroups;
      if (row < a.key_size) sum += at[r] * x[row];
    }
    return sum;
  }
};

// One token: returns v - S^T k with the decayed state.
template <class T, int kRows>
__device__ inline float step(const DeltaRuleArguments& a, const StateBlock& b, i64 row,
                             const float* key, float* shared, State<kRows>& state) {
  const float decay = expf(a.decay[row * a.heads + b.head]);
  const float memory = column_sum(state.along(key, a, b), shared) * decay;
  const float residual = load_value<T>(a, b, row) - memory;
  const float delta = residual * a.beta[row * a.heads + b.head];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int i = b.group + r * kStateGroups;
    if (i < a.key_size) state.at[r] = state.at[r] * decay + key[i] * delta;
  }
  return residual;
}

// The number of a chunk of a sequence; those of other sequences have others.
__device__ inline i64 chunk_number(const StateBlock& b, i64 chunk) {
  return b.first / kStateChunk + b.sequence + chunk;
}
__device__ inline float* state_of_chunk(const DeltaRuleArguments& a, const StateBlock& b,
                                        i64 chunk) {
  return a.begins + (chunk_number(b, chunk) * a.heads + b.head) * a.key_size * a.value_size;
}

template <class T, int kVariant>
__device__ void delta_rule(const DeltaRuleArguments& a) {
  constexpr int kRows = 8 << kVariant;
  __shared__ float query[kLongestState];
  __shared__ float key[kLongestState];
  __shared__ float shared[kThreads];
  const StateBlock b(a);
  float* const kept = a.state == nullptr ? nullptr : a.state + b.head * a.key_size * a.value_size;
  State<kRows> state;
  state.load(kept, a, b);
  for (i64 t = 0; t < b.count; ++t) {
    const i64 row = b.first + t;
    if (a.begins != nullptr && t % kStateChunk == 0) {
      state.store(state_of_chunk(a, b, t / kStateChunk), a, b);
    }
    __syncthreads();
    load_unit_rows<T>(a, b, row, query, key);
    __syncthreads();
    step<T, kRows>(a, b, row, key, shared, state);
    if (a.output == nullptr) continue;  // the states alone
    const float output = column_sum(state.along(query, a, b), shared);
    if (b.group == 0 && b.column < a.value_size) {
      static_cast<T*>(a.output)[(row * a.heads + b.head) * a.value_size + b.column] =
          narrow<T>(output);
    }
  }
  if (kept != nullptr) state.store(kept, a, b);
}

// Backwards from the last token, in chunks whose states are made again and kept in a.states. With D
// the gradient of the state after a token:
//   dq = S do, D += q do^T, dd = D^T k, dv = beta dd, dbeta = dd . (v - S'^T k),
//   dk = D d + S' dm with dm = -beta dd, D' = D + k dm^T, dg = sum D' S', D <- exp(g) D'.
// Sums over columns are those of this block's: [blocks of columns, rows, heads, ...].
template <class T, int kVariant>
__device__ void delta_rule_backward(const DeltaRuleBackwardArguments& all) {
  constexpr int kRows = 8 << kVariant;
  __shared__ float query[kLongestState];
  __shared__ float key[kLongestState];
  __shared__ float shared[kThreads];
  __shared__ float sums[kThreads / kWarp];
  const DeltaRuleArguments& a = all.forward;
  const StateBlock b(a);
  const i64 block = static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x;
  float* const states = all.states + block * kStateChunk * kRows * kThreads;
  State<kRows> of_state;
  of_state.load(nullptr, a, b);
  for (i64 chunk = (b.count + kStateChunk - 1) / kStateChunk - 1; chunk >= 0; --chunk) {
    const i64 begin = chunk * kStateChunk;
    const i64 end = begin + kStateChunk < b.count ? begin + kStateChunk : b.count;
    State<kRows> state;
    state.load(state_of_chunk(a, b, chunk), a, b);
    for (i64 t = begin; t < end; ++t) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {  // a thread reads what it wrote
        states[((t - begin) * kRows + r) * kThreads + threadIdx.x] = state.at[r];
      }
      __syncthreads();
      load_unit_rows<T>(a, b, b.first + t, query, key);
      __syncthreads();
      step<T, kRows>(a, b, b.first + t, key, shared, state);
    }
    for (i64 t = end - 1; t >= begin; --t) {
      const i64 row = b.first + t;
      const i64 of_head = row * a.heads + b.head;
      State<kRows> before;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        before.at[r] = states[((t - begin) * kRows + r) * kThreads + threadIdx.x];
      }
      __syncthreads();
      load_unit_rows<T>(a, b, row, query, key);
      __syncthreads();
      State<kRows> after = before;
      const float residual = step<T, kRows>(a, b, row, key, shared, after);
      const float beta = a.beta[of_head];
      const float decay = expf(a.decay[of_head]);
      const float delta = residual * beta;
      const float gradient =
          b.column < a.value_size
              ? widen(static_cast<const T*>(all.gradient)[of_head * a.value_size + b.column])
              : 0.0F;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int i = b.group + r * kStateGroups;
        if (i < a.key_size) of_state.at[r] += query[i] * gradient;
      }
      const float dd = column_sum(of_state.along(key, a, b), shared);
      const float of_value = dd * beta;
      float* const of_query =
          all.of_rows + ((blockIdx.y * a.rows + row) * a.heads + b.head) * 2 * a.key_size;
      float of_decay = 0.0F;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int i = b.group + r * kStateGroups;
        if (i >= a.key_size) continue;  // a whole warp
        const float decayed = before.at[r] * decay;
        const float dq = warp_sum(after.at[r] * gradient);
        const float dk = warp_sum(of_state.at[r] * delta - decayed * of_value);
        if (b.lane == 0) {
          of_query[i] = dq;
          of_query[a.key_size + i] = dk;
        }
        const float of_decayed = of_state.at[r] - key[i] * of_value;
        of_decay += of_decayed * decayed;
        of_state.at[r] = of_decayed * decay;
      }
      of_decay = block_sum(of_decay, sums);
      const float of_beta = block_sum(b.group == 0 ? dd * residual : 0.0F, sums);
      if (threadIdx.x == 0) {
        float* const parts = all.of_heads + ((blockIdx.y * a.rows + row) * a.heads + b.head) * 2;
        parts[0] = of_decay;
        parts[1] = of_beta;
      }
      if (b.group == 0 && b.column < a.value_size) {
        static_cast<T*>(all.of_mixed)[row * a.columns + 2 * a.key_heads * a.key_size +
                                      b.head * a.value_size + b.column] = narrow<T>(of_value);
      }
    }
  }
}

// Sums the parts of a token: those of queries and keys become gradients of their rows, dx = (du - u
// (u . du)) / |x|. A block for each token and key head; it also sums those of its heads.
template <class T, int kVariant>
__device__ void delta_rule_gradients(const DeltaRuleBackwardArguments& all) {
  __shared__ float sums[kThreads / kWarp];
  const DeltaRuleArguments& a = all.forward;
  const i64 row = blockIdx.x / a.key_heads;
  const i64 key_head = blockIdx.x % a.key_heads;
  const i64 heads = a.heads / a.key_heads;
  for (int which = 0; which < 2; ++which) {  // queries, then keys
    const float scale = which == 0 ? a.scale : 1.0F;
    const float inverse = a.inverses[(row * 2 + which) * a.key_heads + key_head];
    const i64 first = row * a.columns + (which * a.key_heads + key_head) * a.key_size;
    const int i = static_cast<int>(threadIdx.x);
    float unit = 0.0F;
    float gradient = 0.0F;
    if (i < a.key_size) {
      unit = widen(static_cast<const T*>(a.mixed)[first + i]) * inverse;
      for (i64 head = key_head * heads; head < (key_head + 1) * heads; ++head) {
        for (i64 part = 0; part < all.parts; ++part) {
          gradient +=
              all.of_rows[(((part * a.rows + row) * a.heads + head) * 2 + which) * a.key_size + i];
        }
      }
      gradient *= scale;
    }
    const float along = block_sum(unit * gradient, sums);
    if (i < a.key_size) {
      static_cast<T*>(all.of_mixed)[first + i] = narrow<T>(inverse * (gradient - unit * along));
    }
  }
  for (i64 head = key_head * heads + threadIdx.x; head < (key_head + 1) * heads;
       head += blockDim.x) {
    float of_decay = 0.0F;
    float of_beta = 0.0F;
    for (i64 part = 0; part < all.parts; ++part) {
      const float* const parts = all.of_heads + ((part * a.rows + row) * a.heads + head) * 2;
      of_decay += parts[0];
      of_beta += parts[1];
    }
    const i64 at = row * a.heads + head;
    const float x = widen(static_cast<const T*>(a.a)[at]) + a.dt_bias[head];
    const float of_a = of_decay * -expf(a.a_log[head]) / (1.0F + expf(-x));
    const float beta = a.beta[at];
    all.of_a_log[at] = of_decay * a.decay[at];
    all.of_dt_bias[at] = of_a;
    static_cast<T*>(all.of_a)[at] = narrow<T>(of_a);
    static_cast<T*>(all.of_b)[at] = narrow<T>(of_beta * beta * (1.0F - beta));
  }
}

}  // namespace finetune::kernels::cuda
