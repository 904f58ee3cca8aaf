// SPDX-License-Identifier: MIT
#include "finetune/data/token_dataset.h"

#include <algorithm>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/hash.h"

namespace finetune {
namespace {

template <class Value>
void add(Hasher& hasher, const std::vector<Value>& values) {
  // Hashes the length first, so that content cannot move unnoticed from one part to the next.
  const uint64_t count = values.size();
  hasher.update(&count, sizeof(count));
  hasher.update(values.data(), values.size() * sizeof(Value));
}

void check(const TokenContent& content) {
  const auto& ids = content.ids;
  const auto& offsets = content.offsets;
  FT_CHECK(!offsets.empty() && offsets.front() == 0 &&
               offsets.back() == static_cast<int64_t>(ids.size()) &&
               std::is_sorted(offsets.begin(), offsets.end()),
           "offsets do not cut the ids");
  const auto fits = [](const auto& list, size_t size) {
    return list.empty() || list.size() == size;
  };
  FT_CHECK(fits(content.labels, ids.size()), "one label for each id");
  FT_CHECK(fits(content.masks, ids.size()), "one attention value for each id");
  FT_CHECK(fits(content.types, ids.size()), "one token type for each id");
  const auto choices = static_cast<size_t>(content.choices);
  FT_CHECK(choices >= 1 && (offsets.size() - 1) % choices == 0, "each sample has all choices");
  const size_t samples = (offsets.size() - 1) / choices;
  FT_CHECK(fits(content.classes, samples), "one class for each sample");
  FT_CHECK(content.values.size() == samples * static_cast<size_t>(content.outputs) ||
               content.values.empty(),
           "one value for each sample and output");
  FT_CHECK(fits(content.answers, samples), "one answer for each sample");
  FT_CHECK(fits(content.words, ids.size()), "one word for each id");
  FT_CHECK(fits(content.word_counts, samples), "each sample has its words");
}

}  // namespace

TokenDataset::TokenDataset(TokenContent content) : content_(std::move(content)) {
  check(content_);
  const std::vector<int64_t>& offsets = content_.offsets;
  for (size_t i = 1; i < offsets.size(); ++i) {
    longest_ = std::max(longest_, offsets[i] - offsets[i - 1]);
  }
  Hasher hasher;
  add(hasher, content_.ids);
  add(hasher, offsets);
  add(hasher, content_.labels);
  add(hasher, content_.masks);
  // Hashed only if present, so that the fingerprints of plain text do not change.
  const bool has_more = !content_.types.empty() || content_.choices > 1 ||
                        !content_.classes.empty() || !content_.values.empty() ||
                        !content_.answers.empty();
  if (has_more) {
    add(hasher, content_.types);
    add(hasher, std::vector<int64_t>{content_.choices, content_.outputs});
    add(hasher, content_.classes);
    add(hasher, content_.values);
    add(hasher, content_.answers);
  }
  fingerprint_ = hasher.hex();
}

int64_t TokenDataset::size() const {
  return (static_cast<int64_t>(content_.offsets.size()) - 1) / content_.choices;
}

int64_t TokenDataset::length(int64_t index, int64_t choice) const {
  FT_CHECK(index >= 0 && index < size(), "sample index out of range");
  FT_CHECK(choice >= 0 && choice < content_.choices, "choice index out of range");
  const auto sequence = static_cast<size_t>(index * content_.choices + choice);
  return content_.offsets[sequence + 1] - content_.offsets[sequence];
}

Example TokenDataset::get(int64_t index, int64_t choice) const {
  FT_CHECK(index >= 0 && index < size(), "sample index out of range");
  FT_CHECK(choice >= 0 && choice < content_.choices, "choice index out of range");
  const auto sample = static_cast<size_t>(index);
  const auto sequence = static_cast<size_t>(index * content_.choices + choice);
  const auto begin = static_cast<size_t>(content_.offsets[sequence]);
  const auto end = static_cast<size_t>(content_.offsets[sequence + 1]);
  const auto part = [&](const auto& values) {
    return values.empty() ? std::span(values) : std::span(values).subspan(begin, end - begin);
  };
  Example example{.input_ids = part(content_.ids),
                  .labels = part(content_.labels),
                  .attention_mask = part(content_.masks),
                  .token_type_ids = part(content_.types),
                  .label = {},
                  .values = {},
                  .answer = {}};
  if (!content_.classes.empty()) example.label = content_.classes[sample];
  if (!content_.values.empty()) {
    const auto outputs = static_cast<size_t>(content_.outputs);
    example.values = std::span(content_.values).subspan(sample * outputs, outputs);
  }
  if (!content_.answers.empty()) example.answer = content_.answers[sample];
  example.words = part(content_.words);
  if (!content_.word_counts.empty()) example.word_count = content_.word_counts[sample];
  return example;
}

}  // namespace finetune
