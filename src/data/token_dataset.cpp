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
  // The length first, or content could move from one part to the next unseen.
  const uint64_t count = values.size();
  hasher.update(&count, sizeof(count));
  hasher.update(values.data(), values.size() * sizeof(Value));
}

}  // namespace

TokenDataset::TokenDataset(TokenContent content) : content_(std::move(content)) {
  const auto& [ids, offsets, labels, masks] = content_;
  FT_CHECK(!offsets.empty() && offsets.front() == 0 &&
               offsets.back() == static_cast<int64_t>(ids.size()) &&
               std::is_sorted(offsets.begin(), offsets.end()),
           "offsets do not cut the ids");
  FT_CHECK(labels.empty() || labels.size() == ids.size(), "one label for each id");
  FT_CHECK(masks.empty() || masks.size() == ids.size(), "one attention value for each id");
  for (size_t i = 1; i < offsets.size(); ++i) {
    longest_ = std::max(longest_, offsets[i] - offsets[i - 1]);
  }
  Hasher hasher;
  add(hasher, ids);
  add(hasher, offsets);
  add(hasher, labels);
  add(hasher, masks);
  fingerprint_ = hasher.hex();
}

int64_t TokenDataset::size() const { return static_cast<int64_t>(content_.offsets.size()) - 1; }

Example TokenDataset::get(int64_t index) const {
  FT_CHECK(index >= 0 && index < size(), "sample lies outside the dataset");
  const auto begin = static_cast<size_t>(content_.offsets[static_cast<size_t>(index)]);
  const auto end = static_cast<size_t>(content_.offsets[static_cast<size_t>(index) + 1]);
  const auto part = [&](const auto& values) {
    return values.empty() ? std::span(values) : std::span(values).subspan(begin, end - begin);
  };
  return {.input_ids = part(content_.ids),
          .labels = part(content_.labels),
          .attention_mask = part(content_.masks)};
}

}  // namespace finetune
