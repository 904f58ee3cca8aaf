// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/dropout_numbers.h"

namespace finetune::kernels {

// Some query rows of one head's scores, without torch: softmax over the keys that may be attended
// to, and dropout. Rows in which no key may be attended to become zero.
struct ScoreTile {
  float* scores;         // [rows, keys], scaled; become the dropped probabilities
  float* gradient;       // [rows, keys], backward: of these; becomes that of the scores
  const float* key_add;  // [keys] 0 or -infinity; null: all may be attended to
  int64_t rows;
  int64_t keys;
  std::optional<DropoutNumbers> dropout;
  int64_t sample;  // in this batch
  int64_t head;
  int64_t first_query;  // of the tile
  float* scratch;       // of 2 * keys + kDropoutNumbers values
};

void softmax_dropout(const ScoreTile& tile);
void softmax_dropout_backward(const ScoreTile& tile);

}  // namespace finetune::kernels
