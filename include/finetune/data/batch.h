// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

namespace finetune {

inline constexpr int64_t kIgnoredLabel = -100;  // torch's ignore_index

// One micro-batch in host memory, without torch: `rows` x `length`, row-major. A sample has
// `choices` rows (multiple choice), otherwise one. Members that a task does not use are empty.
struct Batch {
  int64_t rows = 0;
  int64_t length = 0;
  int64_t choices = 1;    // rows per sample
  int64_t set = 0;        // of SetsInTurn: the part that all samples of the update are of
  int64_t full_rows = 0;  // of its loader's full batches, with packing a power of two; 0: unknown
  // Index of the first row in its update's effective batch; row r has index first_position + r.
  // Dropout is a function of that index, so another micro-batch size changes no result.
  int64_t first_position = 0;

  std::vector<int64_t> input_ids;       // [rows, length]
  std::vector<uint8_t> attention_mask;  // [rows, length], 1 where a token may be attended to
  std::vector<uint8_t> token_type_ids;  // [rows, length]; empty: all 0
  std::vector<int64_t> labels;          // [rows, length], kIgnoredLabel where there is no target
  std::vector<int64_t> classes;         // [samples], the class or the right choice
  std::vector<float> values;            // [samples, outputs]: numbers, or 0 and 1 for each label
  std::vector<int64_t> starts, ends;    // [rows], first and last token of the answer
  std::vector<int64_t> samples;         // [samples], their indices in the dataset
  int64_t packed_rows = 0;  // with packing: rows of max_seq_length that the samples would fill
  // Number of targets: labels and classes other than kIgnoredLabel, values, or rows with an answer.
  int64_t targets = 0;
  int64_t tokens = 0;  // attention_mask's sum

  // Returns the tokens as transformers counts them, including padding; packed rows have no padding.
  [[nodiscard]] int64_t cells() const { return packed_rows > 0 ? tokens : rows * length; }

  [[nodiscard]] int64_t size() const { return rows / choices; }  // samples

  // Clears the content but keeps the allocations for the next batch.
  void clear() {
    rows = length = set = full_rows = first_position = packed_rows = targets = tokens = 0;
    choices = 1;
    for (auto* list : {&input_ids, &labels, &classes, &starts, &ends, &samples}) list->clear();
    attention_mask.clear();
    token_type_ids.clear();
    values.clear();
  }
};

}  // namespace finetune
