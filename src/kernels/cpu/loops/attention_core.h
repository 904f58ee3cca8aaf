// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/cpu/loops/philox.h"
#include "kernels/interface/dropout_numbers.h"

namespace finetune::kernels {

// Softmax and dropout of some query rows of one head's scores, without torch. Rows whose keys are
// all masked become zero.
struct ScoreTile {
  float* scores;  // [rows, keys], scaled; overwritten with the dropped probabilities
  // [rows, keys], backward: of the dropped probabilities; becomes that of the scores
  float* gradient;
  const float* key_add;  // [keys] 0 or -infinity; null: no key is masked
  int64_t rows;
  int64_t keys;
  std::optional<DropoutNumbers> dropout;
  int64_t sample;  // in this batch
  int64_t head;
  int64_t first_query;     // of the tile
  const int64_t* queries;  // [rows] numbers of the queries in the sample; null: from first_query on
  int64_t first_key;       // of the tile: keys are numbered from the sample's first
  bool causal;             // query i attends to keys up to i
  int64_t window;          // and, where not 0, only to keys at a distance below it
  float softcap;           // c: a score s becomes c tanh(s / c); 0: no soft-capping
  const float* sink;       // a further score of each row, to a key without a value; null: none
  float* of_sink;          // backward: to which the rows' gradients of it are added
  float* scratch;          // of attention_scratch() values
};

// The floats of scratch memory that a thread needs for sequences of `tokens` tokens.
constexpr int64_t attention_scratch(int64_t tokens) { return 3 * tokens + kDropoutNumbers; }

void softmax_dropout(const ScoreTile& tile);
void softmax_dropout_backward(const ScoreTile& tile);

}  // namespace finetune::kernels
