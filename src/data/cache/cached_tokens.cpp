// SPDX-License-Identifier: MIT
#include "data/cache/cached_tokens.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "data/cache/block_hash.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/hash.h"
#include "finetune/base/interrupt.h"

namespace finetune {
namespace {

// Feeds a hasher in the order of token_dataset.cpp: column after column over all blocks.
class ContentHasher {
 public:
  ContentHasher(const std::vector<std::string>& paths, const TokenBlockLimits& limits)
      : paths_(paths), limits_(limits) {}

  void add_count(int64_t count) {
    const auto number = static_cast<uint64_t>(count);
    hasher_.update(&number, sizeof(number));
  }
  template <class Value>
  void add(std::span<const Value> values) {
    hasher_.update(values.data(), values.size_bytes());
    if (step_ != nullptr) step_->advance(std::ssize(values));
  }
  void add_block(const TokenBlock& block) {
    add_ids(hasher_, block.ids());
    step_->advance(block.tokens());
  }
  // From now on `step` counts values.
  void show(LongStep& step) { step_ = &step; }
  void for_each(const std::function<void(const TokenBlock&)>& visit) {
    for (const std::string& path : paths_) {
      interrupt::throw_if_requested("reading tokenised data");
      visit(TokenBlock(path, limits_));
    }
  }
  [[nodiscard]] Hasher& bytes() { return hasher_; }
  [[nodiscard]] std::string hex() const { return hasher_.hex(); }

 private:
  const std::vector<std::string>& paths_;
  TokenBlockLimits limits_;
  Hasher hasher_;
  LongStep* step_ = nullptr;
};

struct Counts {
  int64_t labels = 0, masks = 0, types = 0, classes = 0, values = 0, answers = 0;
  int64_t samples = 0, choices = 1, outputs = 0;
};

template <class Column>
void add_column(ContentHasher& hasher, int64_t count, const Column& column) {
  hasher.add_count(count);
  if (count == 0) return;
  hasher.for_each([&](const TokenBlock& block) { hasher.add(column(block)); });
}

std::string fingerprint_of(ContentHasher& hasher, const CachedTotals& totals, const Counts& counts,
                           const ShowStep& show) {
  LongStep step(
      {.phase = "fingerprint", .doing = "reading the tokenised data again", .unit = "value"},
      totals.tokens + counts.labels + counts.masks + counts.types + counts.classes + counts.values +
          counts.answers,
      show);
  hasher.show(step);
  hasher.add_count(totals.tokens);
  hasher.for_each([&](const TokenBlock& block) { hasher.add_block(block); });
  hasher.add_count(totals.sequences + 1);
  int64_t tokens = 0;
  hasher.add(std::span<const int64_t>(&tokens, 1));
  hasher.for_each(
      [&](const TokenBlock& block) { tokens = add_offsets(hasher.bytes(), block.ends(), tokens); });
  add_column(hasher, counts.labels, [](const TokenBlock& block) { return block.labels(); });
  add_column(hasher, counts.masks, [](const TokenBlock& block) { return block.masks(); });
  const bool has_more = counts.types > 0 || counts.choices > 1 || counts.classes > 0 ||
                        counts.values > 0 || counts.answers > 0;
  if (!has_more) return hasher.hex();
  add_column(hasher, counts.types, [](const TokenBlock& block) { return block.types(); });
  const std::array<int64_t, 2> shape = {counts.choices, counts.outputs};
  hasher.add_count(std::ssize(shape));
  hasher.add(std::span<const int64_t>(shape));
  add_column(hasher, counts.classes, [](const TokenBlock& block) { return block.classes(); });
  add_column(hasher, counts.values, [](const TokenBlock& block) { return block.values(); });
  add_column(hasher, counts.answers, [](const TokenBlock& block) { return block.answers(); });
  return hasher.hex();
}

// Best effort: the folder may be read-only.
void discard(const TokenBlock& block) {
  try {
    FileSystem::local().remove_file(block.path());
  } catch (const Error&) {
  }
}

}  // namespace

CachedTotals total_of_blocks(const std::vector<std::string>& paths, const TokenBlockLimits& limits,
                             const ShowStep& show) {
  CachedTotals totals;
  Counts counts;
  ContentHasher hasher(paths, limits);
  hasher.for_each([&](const TokenBlock& block) {
    totals.sequences += block.sequences();
    totals.tokens += block.tokens();
    totals.longest = std::max(totals.longest, block.longest());
    totals.token_types = std::max(totals.token_types, block.token_types());
    counts.samples += block.samples();
    counts.choices = block.choices();
    counts.outputs = std::max(counts.outputs, block.outputs());
    counts.labels += std::ssize(block.labels());
    counts.masks += std::ssize(block.masks());
    counts.types += std::ssize(block.types());
    counts.classes += std::ssize(block.classes());
    counts.values += std::ssize(block.values());
    counts.answers += std::ssize(block.answers());
  });
  // A column that only some samples have cannot be a target; token types that are all 0 are
  // dropped.
  if (totals.token_types == 1) counts.types = 0;
  totals.has_values = counts.values > 0 && counts.values == counts.samples * counts.outputs;
  totals.has_answers = counts.answers > 0 && counts.answers == counts.samples;
  if (!totals.has_values) counts.values = 0;
  if (!totals.has_answers) counts.answers = 0;
  totals.fingerprint = fingerprint_of(hasher, totals, counts, show);
  return totals;
}

CachedTokens::CachedTokens(std::vector<TokenBlock> blocks, CachedTotals totals,
                           std::shared_ptr<const void> use)
    : blocks_(std::move(blocks)), totals_(std::move(totals)), use_(std::move(use)) {
  int64_t sequences = 0;
  for (const TokenBlock& block : blocks_) {
    first_.push_back(sequences);
    sequences += block.sequences();
    choices_ = block.choices();
  }
  FT_CHECK(sequences == totals_.sequences, "blocks hold what their manifest says");
}

CachedTokens::Position CachedTokens::find(int64_t index, int64_t choice) const {
  FT_CHECK(index >= 0 && index < size(), "sample index out of range");
  FT_CHECK(choice >= 0 && choice < choices_, "choice index out of range");
  const int64_t sequence = index * choices_ + choice;
  const auto after = std::upper_bound(first_.begin(), first_.end(), sequence);
  const auto at = static_cast<size_t>(after - first_.begin() - 1);
  return {.block = &blocks_[at], .sequence = sequence - first_[at]};
}

Example CachedTokens::get(int64_t index, int64_t choice) const {
  const auto [block, sequence] = find(index, choice);
  try {
    Example example = block->get(sequence);
    if (totals_.token_types == 1) example.token_type_ids = {};
    if (!totals_.has_values) example.values = {};
    if (!totals_.has_answers) example.answer = {};
    return example;
  } catch (const Error&) {
    discard(*block);
    throw;
  }
}

TokenSpan CachedTokens::run(int64_t begin, int64_t end) const {
  if (begin == end) return {};
  FT_CHECK(choices_ == 1, "sequences are samples");
  const auto [block, sequence] = find(begin, 0);
  try {
    return block->tokens(sequence, sequence + (end - begin));
  } catch (const Error&) {
    discard(*block);
    throw;
  }
}

int64_t CachedTokens::length(int64_t index, int64_t choice) const {
  const auto [block, sequence] = find(index, choice);
  try {
    return block->length(sequence);
  } catch (const Error&) {
    discard(*block);
    throw;
  }
}

std::optional<DatasetExtent> CachedTokens::extent() const {
  return DatasetExtent{.longest = totals_.longest, .bytes = 0, .token_types = totals_.token_types};
}

}  // namespace finetune
