// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kernels/interface/dropout_numbers.h"

namespace finetune::kernels {

// Block-sparse attention of one head in float32, without torch. Rows are tokens, padded with zeros
// to whole blocks; columns of rows and tiles are padded to whole vectors.
struct PackedHead {
  int64_t block = 0;        // tokens in a block
  int64_t key_columns = 0;  // of a tile of scores: `block`, padded
  int64_t width = 0;        // of a head
  int64_t columns = 0;      // `width`, padded
  int64_t tokens = 0;

  const float* query = nullptr;       // [blocks * block, columns], times the scale of scores
  const float* key = nullptr;         // same layout; backward pass only
  const float* value = nullptr;       // same layout; forward pass only
  const float* of_context = nullptr;  // same layout, gradient of the context; backward pass only
  const float* key_transposed = nullptr;    // [blocks, width, key_columns]
  const float* value_transposed = nullptr;  // same layout; backward pass only
  const float* log_sum_exp = nullptr;       // [tokens]; backward pass only
  const float* context_dot = nullptr;       // [tokens], sum over columns of context * its gradient
  const float* key_add = nullptr;           // [blocks, key_columns] 0 or -infinity
  const uint8_t* seen = nullptr;  // [blocks] how many tokens of the block are unmasked: a BlockSeen

  std::optional<DropoutNumbers> dropout = {};
  int64_t sample = 0;  // in this batch
  int64_t head = 0;

  // The tokens of a block: the last block may be shorter.
  [[nodiscard]] int64_t rows(int64_t index) const {
    return tokens - index * block < block ? tokens - index * block : block;
  }
};

enum BlockSeen : uint8_t { kNoToken, kSomeTokens, kEveryToken };

// Returns the floats of scratch memory that the functions below need.
[[nodiscard]] int64_t block_scratch(const PackedHead& head);

// Computes the context [rows, columns] of one block of queries and log_sum_exp, the logarithm of
// each row's sum of exponentials: +infinity where the row is zero.
struct BlockForward {
  const PackedHead* head;
  int64_t query_block;
  std::span<const int32_t> key_blocks;
  float* context;
  float* log_sum_exp;
  float* scratch;
};
void block_forward(const BlockForward& arguments);

// The backward pass of the pairs of one block with a list of blocks on the other side. Adds to the
// gradients that are not null: of_query [blocks * block, columns], still without the scale, and
// of_key and of_value of the same layout.
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
