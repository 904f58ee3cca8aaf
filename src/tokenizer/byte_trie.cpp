// SPDX-License-Identifier: MIT
#include "tokenizer/byte_trie.h"

namespace finetune::tokenizer {

// Nodes are placed level by level. Free units are linked, so that a node with one child takes the
// first of them at once; a node with many looks at a bounded number of places.
class ByteTrie::Builder {
 public:
  Builder(std::span<const std::pair<std::string_view, int32_t>> strings, std::vector<Unit>& units)
      : strings_(strings), units_(units) {
    units_.clear();
    add_block();
    take(0);
  }

  void run() {
    std::vector<Range> level{{0, 0, strings_.size()}};
    for (size_t depth = 0; !level.empty(); ++depth) {
      std::vector<Range> below;
      for (const Range& range : level) place_children(range, depth, below);
      level = std::move(below);
    }
  }

 private:
  static constexpr int kTries = 128;
  // The strings [begin, end) all start with what leads to `node`.
  struct Range {
    uint32_t node;
    size_t begin;
    size_t end;
  };

  void place_children(Range range, size_t depth, std::vector<Range>& below) {
    if (strings_[range.begin].first.size() == depth) {  // sorted: the one that ends here is first
      if (depth > 0) units_[range.node].value = strings_[range.begin].second;
      ++range.begin;
    }
    if (range.begin == range.end) return;
    labels_.clear();
    children_.clear();
    for (size_t i = range.begin; i < range.end; ++i) {
      const auto label = static_cast<uint8_t>(strings_[i].first[depth]);
      if (labels_.empty() || labels_.back() != label) {
        labels_.push_back(label);
        children_.push_back({0, i, i});
      }
      children_.back().end = i + 1;
    }
    const uint32_t base = find_base();
    units_[range.node].base = base;
    for (size_t i = 0; i < labels_.size(); ++i) {
      const uint32_t child = base ^ labels_[i];
      take(child);
      units_[child].parent = range.node;
      children_[i].node = child;
      below.push_back(children_[i]);
    }
  }

  // A base that finds a free unit for every label.
  uint32_t find_base() {
    uint32_t unit = first_free_;
    for (int tries = 0; tries < kTries && unit != kNone; ++tries, unit = next_[unit]) {
      const uint32_t base = unit ^ labels_.front();
      bool fits = true;
      for (size_t i = 1; i < labels_.size() && fits; ++i) fits = free_[base ^ labels_[i]];
      if (fits) return base;
    }
    return add_block();
  }

  uint32_t add_block() {
    const auto begin = static_cast<uint32_t>(units_.size());
    const auto end = static_cast<uint32_t>(begin + kBlock);
    units_.resize(end);
    free_.resize(end, true);
    next_.resize(end);
    previous_.resize(end);
    for (uint32_t i = begin; i < end; ++i) {
      next_[i] = i + 1 == end ? first_free_ : i + 1;
      previous_[i] = i == begin ? kNone : i - 1;
    }
    if (first_free_ != kNone) previous_[first_free_] = end - 1;
    first_free_ = begin;
    return begin;
  }

  void take(uint32_t unit) {
    free_[unit] = false;
    const uint32_t next = next_[unit];
    const uint32_t previous = previous_[unit];
    (previous == kNone ? first_free_ : next_[previous]) = next;
    if (next != kNone) previous_[next] = previous;
  }

  std::span<const std::pair<std::string_view, int32_t>> strings_;
  std::vector<Unit>& units_;
  std::vector<bool> free_;
  std::vector<uint32_t> next_;
  std::vector<uint32_t> previous_;
  uint32_t first_free_ = kNone;
  std::vector<uint8_t> labels_;
  std::vector<Range> children_;
};

ByteTrie::ByteTrie(std::span<const std::pair<std::string_view, int32_t>> strings) {
  if (!strings.empty()) Builder(strings, units_).run();
}

}  // namespace finetune::tokenizer
