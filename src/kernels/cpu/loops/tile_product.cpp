// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/tile_product.h"

#include <utility>

#include "kernels/cpu/loops/vector_lanes.h"

namespace finetune::kernels {
namespace {

// Rows and vectors of the product that are summed at the same time: they must fit the registers
// together with a row of the right side, and be enough to hide the latency of multiply-add. Heads
// and blocks of 64 divide evenly on AVX512.
template <int W>
constexpr int kRowsAtOnce = W == 16  ? 8
                            : W == 8 ? 6
                                     : 2;
template <int W>
constexpr int kPartsAtOnce = W == 16 ? 2 : kLanes / W;

// `Rows` x `Parts` vectors of the target stay in registers while k runs. `count`: columns of the
// target, at most kLanes, of a tile that is not whole.
template <int W, int Parts, bool Add, int Rows, bool Whole>
FT_INLINE void multiply_rows(const TileProduct& p, int64_t count) {
  using Float = typename Vector<W>::Float;
  Float total[Rows][Parts];
  for (int r = 0; r < Rows; ++r) {
    for (int i = 0; i < Parts; ++i) total[r][i] = Float{};
  }
  for (int64_t k = 0; k < p.sums; ++k) {
    Float right[Parts];
    for (int i = 0; i < Parts; ++i) right[i] = widen<W>(p.right + k * p.right_row + i * W);
    const float* const left = p.left + k * p.left_column;
    for (int r = 0; r < Rows; ++r) {
      const float x = left[r * p.left_row];
      for (int i = 0; i < Parts; ++i) total[r][i] += x * right[i];
    }
  }
  for (int r = 0; r < Rows; ++r) {
    float* const target = p.target + r * p.target_row;
    Float before[Parts] = {};
    if constexpr (Add && Whole) {
      for (int i = 0; i < Parts; ++i) before[i] = widen<W>(target + i * W);
    } else if constexpr (Add) {
      const Lanes<W> all = load<W>(target, count);
      for (int i = 0; i < Parts; ++i) before[i] = all.part[i];
    }
    // One expression, so that it is fused in all cases or in no case.
    for (int i = 0; i < Parts; ++i) total[r][i] = total[r][i] * p.scale + before[i];
    if constexpr (Whole) {
      for (int i = 0; i < Parts; ++i) narrow<W>(total[r][i], target + i * W);
    } else {
      Lanes<W> all;
      for (int i = 0; i < Parts; ++i) all.part[i] = total[r][i];
      store<W>(all, count, target);
    }
  }
}

// Multiplies the last rows, fewer than kRowsAtOnce.
template <int W, int Parts, bool Add, bool Whole, int Rows>
FT_INLINE void multiply_rest(const TileProduct& p, int64_t rows, int64_t count) {
  if constexpr (Rows > 0) {
    if (rows == Rows) {
      multiply_rows<W, Parts, Add, Rows, Whole>(p, count);
    } else {
      multiply_rest<W, Parts, Add, Whole, Rows - 1>(p, rows, count);
    }
  }
}

template <int W, int Parts, bool Add, bool Whole = true>
FT_INLINE void multiply_columns(TileProduct p, int64_t count = 0) {
  constexpr int kStep = kRowsAtOnce<W>;
  int64_t rows = p.rows;
  for (; rows >= kStep; rows -= kStep) {
    multiply_rows<W, Parts, Add, kStep, Whole>(p, count);
    p.left += kStep * p.left_row;
    p.target += kStep * p.target_row;
  }
  multiply_rest<W, Parts, Add, Whole, kStep - 1>(p, rows, count);
}

template <int W, bool Add>
FT_INLINE void multiply(TileProduct p) {
  constexpr int64_t kStep = kPartsAtOnce<W> * W;
  const auto step = [&p](int64_t columns) {
    p.right += columns;
    p.target += columns;
    p.columns -= columns;
  };
  for (; p.columns >= kStep; step(kStep)) multiply_columns<W, kPartsAtOnce<W>, Add>(p);
  if constexpr (kStep > kLanes) {
    for (; p.columns >= kLanes; step(kLanes)) multiply_columns<W, kLanes / W, Add>(p);
  }
  if (p.columns > 0) multiply_columns<W, kLanes / W, Add, false>(p, p.columns);
}

template <int W>
FT_INLINE void multiply_setting(const TileProduct& product) {
  multiply<W, false>(product);
}
template <int W>
FT_INLINE void multiply_adding(const TileProduct& product) {
  multiply<W, true>(product);
}

// Lane `lane` of a vector after the exchange of blocks of S lanes, among those of two vectors: the
// first keeps its lanes without the bit S, the second those with it.
constexpr int exchanged(int lane, int S, int W, bool is_second) {
  const bool has_bit = (lane & S) != 0;
  if (is_second) return has_bit ? W + lane : lane + S;
  return has_bit ? W + lane - S : lane;
}

template <int W, int S, bool IsSecond, int... Lane>
FT_INLINE typename Vector<W>::Float exchange(const typename Vector<W>::Float& a,
                                             const typename Vector<W>::Float& b,
                                             std::integer_sequence<int, Lane...> /*lanes*/) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, exchanged(Lane, S, W, IsSecond)...);
#else
  return __builtin_shuffle(a, b, typename Vector<W>::Int{exchanged(Lane, S, W, IsSecond)...});
#endif
}

// Exchanges blocks of S, then of 2 S, ... lanes of W vectors.
template <int W, int S>
FT_INLINE void exchange_all(typename Vector<W>::Float* x) {
  if constexpr (S < W) {
    constexpr auto kAll = std::make_integer_sequence<int, W>();
    for (int i = 0; i < W; ++i) {
      if ((i & S) != 0) continue;
      const typename Vector<W>::Float a = x[i];
      const typename Vector<W>::Float b = x[i + S];
      x[i] = exchange<W, S, false>(a, b, kAll);
      x[i + S] = exchange<W, S, true>(a, b, kAll);
    }
    exchange_all<W, 2 * S>(x);
  }
}

template <int W>
FT_INLINE void transpose(const Transposition& call) {
  using Float = typename Vector<W>::Float;
  const int64_t whole_rows = call.rows / W * W;
  const int64_t whole_width = call.width / W * W;
  for (int64_t r = 0; r < whole_rows; r += W) {
    for (int64_t c = 0; c < whole_width; c += W) {
      Float x[W];
      for (int i = 0; i < W; ++i) x[i] = widen<W>(call.source + (r + i) * call.stride + c);
      exchange_all<W, 1>(x);
      for (int i = 0; i < W; ++i) narrow<W>(x[i], call.target + (c + i) * call.columns + r);
    }
  }
  for (int64_t c = 0; c < call.width; ++c) {
    float* const target = call.target + c * call.columns;
    const int64_t done = c < whole_width ? whole_rows : 0;
    for (int64_t r = done; r < call.rows; ++r) target[r] = call.source[r * call.stride + c];
    for (int64_t r = call.rows; r < call.columns; ++r) target[r] = 0.0F;
  }
}

}  // namespace

FT_VECTOR_KERNEL(set_product, TileProduct, multiply_setting)
FT_VECTOR_KERNEL(add_product, TileProduct, multiply_adding)
FT_VECTOR_KERNEL(transpose_tile, Transposition, transpose)

}  // namespace finetune::kernels
