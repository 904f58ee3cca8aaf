// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/block_tiles.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/loops/philox.h"
#include "kernels/cpu/loops/tile_product.h"
#include "kernels/cpu/loops/vector_math.h"

namespace finetune::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Scratch {
  float* scores;    // [block, key_columns]
  float* gradient;  // [block, key_columns], of the scores
  float* top;       // [block]
  float* total;     // [block]
  float* factors;   // of one row

  Scratch(const PackedHead& head, float* memory)
      : scores(memory),
        gradient(scores + head.block * head.key_columns),
        top(gradient + head.block * head.key_columns),
        total(top + head.block),
        factors(total + head.block) {}
};

// Writes the dropout factors of a row of a tile; null without dropout. Philox blocks cover four
// keys, so they begin up to three keys before the tile.
FT_INLINE const float* make_factors(const PackedHead& head, int64_t query, int64_t key,
                                    float* memory) {
  if (!head.dropout) return nullptr;
  dropout_factors({static_cast<uint32_t>(head.head << 16 | query),
                   head.dropout->first_position + static_cast<uint32_t>(head.sample),
                   head.dropout->layer_and_site, head.dropout->key, head.dropout->threshold(),
                   head.dropout->scale(), static_cast<uint32_t>(key / 4)},
                  head.block + key % 4, memory);
  return memory + key % 4;
}

// Online softmax (Milakov and Gimelshein 2018): includes one more tile of scores. With top' the
// maximum so far, scores become exp(score - top'); the total and the context so far are multiplied
// by exp(top - top').
template <int W>
FT_INLINE void soften(const PackedHead& head, const BlockForward& call, int64_t key_block,
                      const Scratch& scratch) {
  const float* add =
      head.seen[key_block] == kEveryToken ? nullptr : head.key_add + key_block * head.key_columns;
  const int64_t rows = head.rows(call.query_block);
  for (int64_t r = 0; r < rows; ++r) {
    float* row = scratch.scores + r * head.key_columns;
    Lanes<W> tops(-kInfinity);
    for (int64_t c = 0; c < head.key_columns; c += kLanes) {
      Lanes<W> x = load_all<W>(row + c);
      if (add != nullptr) {
        x = x + load_all<W>(add + c);
        store_all<W>(x, row + c);
      }
      tops = larger(x, tops);
    }
    const float top = largest(tops);
    if (top > scratch.top[r]) {
      const float correction = exponential(scratch.top[r] - top);
      scratch.top[r] = top;
      scratch.total[r] *= correction;
      float* context = call.context + r * head.columns;
      for (int64_t c = 0; c < head.columns; c += kLanes) {
        store_all<W>(load_all<W>(context + c) * correction, context + c);
      }
    }
    // If all keys so far are masked, subtracting 0 instead of -infinity gives zeros, not NaN.
    const float shift = scratch.top[r] == -kInfinity ? 0.0F : scratch.top[r];
    const float* factors = make_factors(head, call.query_block * head.block + r,
                                        key_block * head.block, scratch.factors);
    Lanes<W> totals(0.0F);
    for (int64_t c = 0; c < head.key_columns; c += kLanes) {
      Lanes<W> e = exponential(load_all<W>(row + c) - shift);
      totals = totals + e;
      if (factors != nullptr) e = e * load_all<W>(factors + c);
      store_all<W>(e, row + c);
    }
    scratch.total[r] += sum(totals);
  }
}

// context = sum over key blocks of Dropout(softmax(Q K^T)) V, with the online softmax. Rows are
// divided by their total at the end; masked queries become zero.
template <int W>
FT_INLINE void forward(const BlockForward& call) {
  const PackedHead& head = *call.head;
  const Scratch scratch(head, call.scratch);
  const int64_t rows = head.rows(call.query_block);
  for (int64_t r = 0; r < rows; ++r) {
    scratch.top[r] = -kInfinity;
    scratch.total[r] = 0.0F;
  }
  for (int64_t i = 0; i < rows * head.columns; ++i) call.context[i] = 0.0F;
  const float* query = head.query + call.query_block * head.block * head.columns;
  const bool is_seen = head.seen[call.query_block] != kNoToken;
  for (const int32_t key : call.key_blocks) {
    if (!is_seen || head.seen[key] == kNoToken) continue;
    set_product({.left = query,
                 .left_row = head.columns,
                 .left_column = 1,
                 .right = head.key_transposed + key * head.width * head.key_columns,
                 .right_row = head.key_columns,
                 .target = scratch.scores,
                 .target_row = head.key_columns,
                 .rows = rows,
                 .columns = head.key_columns,
                 .sums = head.width});
    soften<W>(head, call, key, scratch);
    add_product({.left = scratch.scores,
                 .left_row = head.key_columns,
                 .left_column = 1,
                 .right = head.value + key * head.block * head.columns,
                 .right_row = head.columns,
                 .target = call.context,
                 .target_row = head.columns,
                 .rows = rows,
                 .columns = head.columns,
                 .sums = head.block});
  }
  const float* add = head.key_add + call.query_block * head.key_columns;
  for (int64_t r = 0; r < rows; ++r) {
    const bool is_zero = scratch.total[r] == 0.0F || add[r] != 0.0F;
    const float factor = is_zero ? 0.0F : 1.0F / scratch.total[r];
    float* context = call.context + r * head.columns;
    for (int64_t c = 0; c < head.columns; c += kLanes) {
      store_all<W>(load_all<W>(context + c) * factor, context + c);
    }
    call.log_sum_exp[r] = is_zero ? kInfinity : scratch.top[r] + std::log(scratch.total[r]);
  }
}

// With P = exp(score - log_sum_exp) the probabilities, f the dropout factors and g the gradient of
// P f: scores become P f, and their gradient P (g f - sum(P g f)). The sum runs over all tiles of
// the row and equals the dot product of the context with its gradient (context_dot).
template <int W>
FT_INLINE void differentiate(const PackedHead& head, int64_t query_block, int64_t key_block,
                             const Scratch& scratch) {
  const float* add =
      head.seen[key_block] == kEveryToken ? nullptr : head.key_add + key_block * head.key_columns;
  const int64_t rows = head.rows(query_block);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t query = query_block * head.block + r;
    float* row = scratch.scores + r * head.key_columns;
    float* gradient_row = scratch.gradient + r * head.key_columns;
    const float shift = head.log_sum_exp[query];
    const float dot = head.context_dot[query];
    const float* factors = make_factors(head, query, key_block * head.block, scratch.factors);
    for (int64_t c = 0; c < head.key_columns; c += kLanes) {
      Lanes<W> x = load_all<W>(row + c);
      if (add != nullptr) x = x + load_all<W>(add + c);
      x = exponential(x - shift);
      Lanes<W> gradient = load_all<W>(gradient_row + c);
      if (factors != nullptr) {
        const Lanes<W> factor = load_all<W>(factors + c);
        store_all<W>(x * factor, row + c);
        gradient = gradient * factor;
      } else {
        store_all<W>(x, row + c);
      }
      store_all<W>(x * (gradient - dot), gradient_row + c);
    }
  }
}

// One pair of blocks: S = Q K^T and dP = dContext V^T, then dQ += dS K, dK += dS^T Q and dV += (P
// f)^T dContext.
template <int W>
FT_INLINE void backward_pair(const BlockBackward& call, int64_t query_block, int64_t key_block,
                             const Scratch& scratch) {
  const PackedHead& head = *call.head;
  const int64_t rows = head.rows(query_block);
  const int64_t first_query = query_block * head.block * head.columns;
  const int64_t first_key = key_block * head.block * head.columns;
  const int64_t transposed = key_block * head.width * head.key_columns;
  TileProduct scores = {.left = head.query + first_query,
                        .left_row = head.columns,
                        .left_column = 1,
                        .right = head.key_transposed + transposed,
                        .right_row = head.key_columns,
                        .target = scratch.scores,
                        .target_row = head.key_columns,
                        .rows = rows,
                        .columns = head.key_columns,
                        .sums = head.width};
  set_product(scores);
  scores.left = head.of_context + first_query;
  scores.right = head.value_transposed + transposed;
  scores.target = scratch.gradient;
  set_product(scores);
  differentiate<W>(head, query_block, key_block, scratch);
  if (call.of_query != nullptr) {
    add_product({.left = scratch.gradient,
                 .left_row = head.key_columns,
                 .left_column = 1,
                 .right = head.key + first_key,
                 .right_row = head.columns,
                 .target = call.of_query + first_query,
                 .target_row = head.columns,
                 .rows = rows,
                 .columns = head.columns,
                 .sums = head.block});
  }
  if (call.of_key == nullptr) return;
  TileProduct of_key = {.left = scratch.gradient,
                        .left_row = 1,
                        .left_column = head.key_columns,
                        .right = head.query + first_query,
                        .right_row = head.columns,
                        .target = call.of_key + first_key,
                        .target_row = head.columns,
                        .rows = head.block,
                        .columns = head.columns,
                        .sums = rows};
  add_product(of_key);
  of_key.left = scratch.scores;
  of_key.right = head.of_context + first_query;
  of_key.target = call.of_value + first_key;
  add_product(of_key);
}

template <int W>
FT_INLINE void backward(const BlockBackward& call) {
  const PackedHead& head = *call.head;
  const Scratch scratch(head, call.scratch);
  for (const int32_t other : call.others) {
    const int64_t query_block = call.is_query_block ? call.index : other;
    const int64_t key_block = call.is_query_block ? other : call.index;
    if (head.seen[query_block] == kNoToken || head.seen[key_block] == kNoToken) continue;
    backward_pair<W>(call, query_block, key_block, scratch);
  }
}

}  // namespace

int64_t block_scratch(const PackedHead& head) {
  return 2 * head.block * head.key_columns + 2 * head.block + head.key_columns +
         2 * int64_t{kDropoutNumbers};
}

FT_VECTOR_KERNEL(block_forward, BlockForward, forward)
FT_VECTOR_KERNEL(block_backward, BlockBackward, backward)

}  // namespace finetune::kernels
