// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace finetune {

// transformers' AggregationStrategy.
enum class Aggregation { kNone, kSimple, kFirst, kAverage, kMax };

// A token with the probability of each label. Offsets are code points of the text.
struct TaggedToken {
  int64_t index = 0;  // in the sequence, special tokens counted
  int32_t id = 0;
  std::string word = {};
  std::vector<float> scores = {};
  int64_t start = 0;
  int64_t end = 0;
  bool is_subword = false;  // continues the word of the previous token
};

// A token or a group of tokens with one label.
struct EntityGroup {
  std::string label;  // without B- or I- where tokens were grouped
  double score = 0.0;
  int64_t start = 0;
  int64_t end = 0;
  std::span<const TaggedToken> tokens;
};

// Returns the entities as transformers' pipeline finds them, without those with ignored labels.
// They refer to `tokens`.
[[nodiscard]] std::vector<EntityGroup> find_entities(std::span<const TaggedToken> tokens,
                                                     Aggregation aggregation,
                                                     const std::vector<std::string>& labels,
                                                     const std::vector<std::string>& ignored);

}  // namespace finetune
