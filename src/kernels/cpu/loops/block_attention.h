// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kernels/dropout_numbers.h"

namespace finetune::kernels {

// Block-sparse attention of one head in float32, without torch. Rows are tokens in blocks, padded
// with zeros to whole blocks; their columns and the tiles' are padded to whole vectors.
struct PackedHead {
  int64_t block = 0;        // tokens in a block
  int64_t key_columns = 0;  // of a tile of scores: `block`, padded
  int64_t width = 0;        // of a head
  int64_t columns = 0;      // `width`, padded
  int64_t tokens = 0;

  const float* query = nullptr;             // [blocks * block, columns], times the scores' scale
  const float* key = nullptr;               // like it, for the backward pass alone
  const float* value = nullptr;             // like it, for the forward pass alone
  const float* of_context = nullptr;        // like it, gradient; for the backward pass alone
  const float* key_transposed = nullptr;    // [blocks, width, key_columns]
  const float* value_transposed = nullptr;  // like it, for the backward pass alone
  const float* log_sum_exp = nullptr;       // [tokens], for the backward pass alone
  const float* context_dot = nullptr;       // [tokens], sum of context times its gradient
  const float* key_add = nullptr;           // [blocks, key_columns] 0 or -infinity
  const uint8_t* seen = nullptr;            // [blocks] how many of the tokens: a BlockSeen

  std::optional<DropoutNumbers> dropout = {};
  int64_t sample = 0;  // in this batch
  int64_t head = 0;

  // Of the last block fewer are there.
  [[nodiscard]] int64_t rows(int64_t index) const {
    return tokens - index * block < block ? tokens - index * block : block;
  }
};

enum BlockSeen : uint8_t { kNoToken, kSomeTokens, kEveryToken };

// Floats of scratch memory that the functions below need.
[[nodiscard]] int64_t block_scratch(const PackedHead& head);

// target[c * columns + r] = source[r * stride + c]; the columns from `rows` on become zero.
struct Transposition {
  const float* source;
  int64_t stride;
  int64_t rows;
  int64_t width;
  float* target;
  int64_t columns;
};
void transpose_block(const Transposition& arguments);

// The context of a block of queries: [rows, columns], and the logarithm of each row's sum of
// exponentials, +infinity where the row is zero.
struct BlockForward {
  const PackedHead* head;
  int64_t query_block;
  std::span<const int32_t> key_blocks;
  float* context;
  float* log_sum_exp;
  float* scratch;
};
void block_forward(const BlockForward& arguments);

// The pairs of one block on the one side with a list of them on the other. Adds to what is not
// null: of_query [blocks * block, columns], without the scale; of_key and of_value like it.
struct BlockBackward {
  const PackedHead* head;
  bool is_query_block;  // the list holds blocks of keys, in the order in which they are added
  int64_t index;
  std::span<const int32_t> others;
  float* of_query;
  float* of_key;
  float* of_value;
  float* scratch;
};
void block_backward(const BlockBackward& arguments);

}  // namespace finetune::kernels
