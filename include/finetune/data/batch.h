// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

namespace finetune {

inline constexpr int64_t kIgnoredLabel = -100;  // torch's ignore_index

// One micro-batch in host memory, without torch: `rows` x `length`, row-major, padded on the right.
struct Batch {
  int64_t rows = 0;
  int64_t length = 0;
  // Where the first row stands in its update's effective batch; row r stands at first_place + r.
  // Dropout is a function of that place, so cutting the batch otherwise changes nothing.
  int64_t first_place = 0;

  std::vector<int64_t> input_ids;       // [rows, length]
  std::vector<uint8_t> attention_mask;  // [rows, length], 1 where a token may be attended to
  std::vector<int64_t> labels;          // [rows, length], kIgnoredLabel where nothing is learnt
  int64_t targets = 0;                  // labels other than kIgnoredLabel
  int64_t tokens = 0;                   // attention_mask's sum
};

}  // namespace finetune
