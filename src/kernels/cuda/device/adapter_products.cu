// SPDX-License-Identifier: MIT
// The products of a LoRA adapter with its input's dropout, which cuBLAS would need as a tensor.
// Variants: up to 8 and 16 ranks; then exactly as many, with aligned rows, so that no branch
// keeps a load from being under way before the one before it has ended.
#include "kernels/cuda/device/common.h"

namespace finetune::kernels::cuda {

template <int kVariant>
struct AdapterShape {
  static constexpr bool kIsExact = kVariant >= kAdapterVariants;
  static constexpr int kRanks = 8 << kVariant % kAdapterVariants;

  // Loads values [first, first + 4) of a row; zeros after its end, which exact shapes do not reach.
  template <class T>
  __device__ static void load(const T* row, i64 first, i64 columns, int is_aligned, float* values) {
    if constexpr (kIsExact) {
      const Four<T> four = *reinterpret_cast<const Four<T>*>(row + first);
#pragma unroll
      for (int i = 0; i < 4; ++i) values[i] = widen(four.at[i]);
    } else {
      load4(row, first, columns, is_aligned, values);
    }
  }
  // Four values of a row of A; zeros after its last.
  template <class T>
  __device__ static void load_factor(const AdapterArguments& a, int rank, i64 first,
                                     float* values) {
    const i64 columns = kIsExact || rank < a.rank ? a.columns : 0;
    load(static_cast<const T*>(a.factor) + rank * a.columns, first, columns, a.is_aligned, values);
  }
};

// Which sample's row it is, for its random numbers.
struct MaskRow {
  u32 sample, position;
};

// Where rows [first, first + kRows) are in their samples; after the last row of all, that one's.
template <int kRows>
__device__ inline void mask_rows(const AdapterArguments& a, i64 first, MaskRow* masks) {
  const auto row = [&](int r) { return first + r < a.rows ? first + r : a.rows - 1; };
  if (a.dropout.sequences != nullptr) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      masks[r] = {static_cast<u32>(a.dropout.sequences[row(r)]),
                  static_cast<u32>(a.dropout.positions[row(r)])};
    }
  } else if (a.dropout.is_on != 0) {
    const u32 length = static_cast<u32>(a.dropout.rows_per_sample);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const u32 number = static_cast<u32>(row(r));
      masks[r] = {number / length, number % length};
    }
  }
}

// Four values of x after dropout, rounded as if they had been stored, and the factors.
template <class T>
__device__ inline void drop4(const DropoutArguments& d, const MaskRow& row, i64 first, float* x,
                             float* factors) {
  if (d.is_on == 0) {
#pragma unroll
    for (int i = 0; i < 4; ++i) factors[i] = 1.0F;
    return;
  }
  dropout_factors(d, row.sample, 0, row.position, static_cast<u32>(first / 4), factors);
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = widen(narrow<T>(x[i] * factors[i]));
}

// low = scale drop(x) A^T: each warp has some rows, its lanes every 32nd group of four columns.
// Each row of the grid has an adapter.
template <class T, int kVariant>
__device__ void adapter_product(const AdaptersArguments& adapters) {
  const AdapterArguments& a = adapters.of[blockIdx.y];
  using Shape = AdapterShape<kVariant>;
  constexpr int kRanks = Shape::kRanks;
  constexpr int kRows = kAdapterRows;
  const i64 lane = threadIdx.x % kWarp;
  const i64 warp = static_cast<i64>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  const i64 first_row = warp * kRows;
  if (first_row >= a.rows) return;  // a whole warp
  MaskRow masks[kRows] = {};
  mask_rows<kRows>(a, first_row, masks);
  const T* rows[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const i64 row = first_row + r < a.rows ? first_row + r : a.rows - 1;
    rows[r] = static_cast<const T*>(a.input) + row * a.columns;
  }
  float sums[kRows][kRanks] = {};
  for (i64 first = 4 * lane; first < a.columns; first += 4 * kWarp) {
    float x[kRows][4];
#pragma unroll
    for (int r = 0; r < kRows; ++r) Shape::load(rows[r], first, a.columns, a.is_aligned, x[r]);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float factors[4];
      drop4<T>(a.dropout, masks[r], first, x[r], factors);
    }
#pragma unroll
    for (int rank = 0; rank < kRanks; ++rank) {
      float w[4];
      Shape::template load_factor<T>(a, rank, first, w);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[r][rank] += x[r][i] * w[i];
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float own = 0.0F;  // of the rank with this lane's number
#pragma unroll
    for (int rank = 0; rank < kRanks; ++rank) {
      const float sum = warp_sum(sums[r][rank]);
      if (rank == lane) own = sum;
    }
    if (first_row + r < a.rows && lane < a.rank) {
      static_cast<T*>(a.low)[(first_row + r) * a.rank + lane] = narrow<T>(a.scale * own);
    }
  }
}

// Where rows are in their samples, and their `low`, of the rows that a block goes down together.
template <int kRanks>
struct StagedRows {
  MaskRow masks[kAdapterWarps][kStagedRows];
  Four<float> low[kAdapterWarps][kStagedRows][kRanks / 4];
};

// Loads the rows of each warp that follow the first `done`; zeros after the last row.
template <class T, int kRanks>
__device__ void stage_rows(const AdapterArguments& a, i64 done, StagedRows<kRanks>& staged) {
  const i64 first = static_cast<i64>(blockIdx.x) * kAdapterWarps * a.rows_at_once + done;
  for (int i = static_cast<int>(threadIdx.x); i < kAdapterWarps * kStagedRows * kRanks;
       i += static_cast<int>(blockDim.x)) {
    const int rank = i % kRanks;
    const int r = i / kRanks % kStagedRows;
    const int warp = i / kRanks / kStagedRows;
    const i64 row = first + warp * a.rows_at_once + r;
    const bool is_there = row < a.rows && done + r < a.rows_at_once;
    const i64 number = is_there ? row : 0;
    if (rank == 0) mask_rows<1>(a, number, &staged.masks[warp][r]);
    staged.low[warp][r][rank / 4].at[rank % 4] =
        is_there && rank < a.rank ? widen(static_cast<const T*>(a.low)[number * a.rank + rank])
                                  : 0.0F;
  }
}

// Loads two values of a row from `first` on; zeros after its end.
template <class T, bool kIsExact>
__device__ inline void load2(const T* row, i64 first, i64 columns, float* values) {
  if constexpr (kIsExact) {
    const Two<T> two = *reinterpret_cast<const Two<T>*>(row + first);
    values[0] = widen(two.at[0]);
    values[1] = widen(two.at[1]);
  } else {
    values[0] = first < columns ? widen(row[first]) : 0.0F;
    values[1] = first + 1 < columns ? widen(row[first + 1]) : 0.0F;
  }
}

// The dropout factors of this lane's two columns in two rows. Four columns have one random block,
// so the even lane draws that of the first row, the odd one that of the second, and they exchange
// halves.
__device__ inline void pair_factors(const DropoutArguments& d, const MaskRow* rows, i64 own,
                                    float factors[2][2]) {
  const bool is_odd = threadIdx.x % 2 != 0;
  const MaskRow row = is_odd ? rows[1] : rows[0];
  u32 c[4] = {static_cast<u32>(own / 4), row.position, row.sample + d.first_position,
              d.layer_and_site};
  philox(c, d.key0, d.key1);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const u32 kept = is_odd ? c[2 + i] : c[i];
    const u32 other = __shfl_xor_sync(0xFFFFFFFFU, is_odd ? c[i] : c[2 + i], 1);
    factors[0][i] = (is_odd ? other : kept) >= d.threshold ? d.scale : 0.0F;
    factors[1][i] = (is_odd ? kept : other) >= d.threshold ? d.scale : 0.0F;
  }
}

// Two columns of two rows of x, and of the gradient that is added to.
template <class T, bool kIsExact>
struct PairOfRows {
  float x[2][2];
  float before[2][2] = {};

  // Row `top` and the next; `top` twice where that is the last before `stop`.
  __device__ PairOfRows(const AdapterArguments& a, i64 top, i64 stop, i64 first, bool adds) {
    const i64 rows[2] = {top * a.columns, (top + 1 < stop ? top + 1 : top) * a.columns};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      load2<T, kIsExact>(static_cast<const T*>(a.input) + rows[r], first, a.columns, x[r]);
    }
    if (!adds) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      load2<T, kIsExact>(static_cast<const T*>(a.of_input) + rows[r], first, a.columns, before[r]);
    }
  }
};

// dx += drop'(low A) and parts of dA = low^T drop(x), with `low` the gradient of the product. The
// lanes of a warp own two columns each, of which A stays in registers, and go down its rows, two at
// a time; the warps of a block have the same columns, and their sums are added in pairs. dx may be
// the memory of x.
template <class T, int kVariant>
__device__ void adapter_backward(const AdapterArguments& a) {
  using Shape = AdapterShape<kVariant>;
  constexpr int kRanks = Shape::kRanks;
  constexpr bool kIsExact = Shape::kIsExact;
  __shared__ StagedRows<kRanks> staged;
  __shared__ Two<float> shared[kAdapterWarps / 2][kRanks][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const i64 own = 2 * (static_cast<i64>(blockIdx.y) * kWarp + lane);
  const bool has_columns = own < a.columns;
  const i64 first = has_columns ? own : 0;
  const i64 begin = (static_cast<i64>(blockIdx.x) * kAdapterWarps + warp) * a.rows_at_once;
  const i64 end = begin + a.rows_at_once < a.rows ? begin + a.rows_at_once : a.rows;
  T* const target = static_cast<T*>(a.of_input);
  const bool writes = target != nullptr && has_columns;
  const bool adds = writes && a.adds != 0;
  float w[kRanks][2];
#pragma unroll
  for (int rank = 0; rank < kRanks; ++rank) {
    const i64 columns = kIsExact || rank < a.rank ? a.columns : 0;
    load2<T, kIsExact>(static_cast<const T*>(a.factor) + rank * a.columns, first, columns, w[rank]);
  }
  float sums[kRanks][2] = {};
  for (i64 done = 0; done < a.rows_at_once; done += kStagedRows) {
    stage_rows<T, kRanks>(a, done, staged);
    __syncthreads();
    const i64 last =
        begin + (done + kStagedRows < a.rows_at_once ? done + kStagedRows : a.rows_at_once);
    const i64 stop = last < end ? last : end;
    // The rows after these are under way while these are computed.
    PairOfRows<T, kIsExact> next(a, begin + done < stop ? begin + done : 0, stop, first, adds);
    for (i64 top = begin + done; top < stop; top += 2) {
      PairOfRows<T, kIsExact> pair = next;
      next = {a, top + 2 < stop ? top + 2 : top, stop, first, adds};
      const bool is_pair = top + 1 < stop;  // else the second row is the first, and counts nothing
      const int index[2] = {static_cast<int>(top - begin - done),
                            static_cast<int>(top - begin - done) + static_cast<int>(is_pair)};
      float(&x)[2][2] = pair.x;
      float factors[2][2] = {{1.0F, 1.0F}, {1.0F, 1.0F}};
      float dx[2][2] = {};
      if (a.dropout.is_on != 0) {
        const MaskRow masks[2] = {staged.masks[warp][index[0]], staged.masks[warp][index[1]]};
        pair_factors(a.dropout, masks, own, factors);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
#pragma unroll
          for (int i = 0; i < 2; ++i) x[r][i] = widen(narrow<T>(x[r][i] * factors[r][i]));
        }
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float counts = r == 0 || is_pair ? 1.0F : 0.0F;
        x[r][0] *= counts;
        x[r][1] *= counts;
#pragma unroll
        for (int rank = 0; rank < kRanks; rank += 4) {
          const Four<float> low = staged.low[warp][index[r]][rank / 4];
#pragma unroll
          for (int j = 0; j < 4; ++j) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              sums[rank + j][i] += low.at[j] * x[r][i];
              dx[r][i] += low.at[j] * w[rank + j][i];
            }
          }
        }
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (!writes || (r == 1 && !is_pair)) continue;
        const float sum[2] = {pair.before[r][0] + factors[r][0] * dx[r][0],
                              pair.before[r][1] + factors[r][1] * dx[r][1]};
        T* const row = target + (top + r) * a.columns + first;
        if constexpr (kIsExact) {
          *reinterpret_cast<Two<T>*>(row) = {narrow<T>(sum[0]), narrow<T>(sum[1])};
        } else {
          row[0] = narrow<T>(sum[0]);
          if (first + 1 < a.columns) row[1] = narrow<T>(sum[1]);
        }
      }
    }
    __syncthreads();
  }
  for (int half = kAdapterWarps / 2; half > 0; half /= 2) {
    if (warp >= half && warp < 2 * half) {
#pragma unroll
      for (int rank = 0; rank < kRanks; ++rank) {
        shared[warp - half][rank][lane] = {sums[rank][0], sums[rank][1]};
      }
    }
    __syncthreads();
    if (warp < half) {
#pragma unroll
      for (int rank = 0; rank < kRanks; ++rank) {
        const Two<float> two = shared[warp][rank][lane];
        sums[rank][0] += two.at[0];
        sums[rank][1] += two.at[1];
      }
    }
    __syncthreads();
  }
  if (warp != 0 || !has_columns) return;
  float* const parts = a.parts + static_cast<i64>(blockIdx.x) * a.rank * a.columns + first;
#pragma unroll
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank >= a.rank) break;
    parts[rank * a.columns] = sums[rank][0];
    if (first + 1 < a.columns) parts[rank * a.columns + 1] = sums[rank][1];
  }
}

}  // namespace finetune::kernels::cuda
