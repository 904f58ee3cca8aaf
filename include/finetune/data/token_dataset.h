// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "finetune/data/dataset.h"

namespace finetune {

// Samples in memory: all ids in one row, cut by offsets.
struct TokenContent {
  std::vector<int32_t> ids = {};
  std::vector<int64_t> offsets = {0};  // sample i is ids[offsets[i], offsets[i + 1])
  std::vector<int32_t> labels = {};    // empty, or one for each id
  std::vector<uint8_t> masks = {};     // attention; empty, or one for each id
};

class TokenDataset final : public Dataset {
 public:
  // Requires: offsets that start at 0, do not fall and end at ids.size().
  explicit TokenDataset(TokenContent content);

  [[nodiscard]] int64_t size() const override;
  [[nodiscard]] Example get(int64_t index) const override;
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }

  [[nodiscard]] int64_t tokens() const { return static_cast<int64_t>(content_.ids.size()); }
  [[nodiscard]] int64_t longest() const { return longest_; }  // tokens of the longest sample

 private:
  TokenContent content_;
  int64_t longest_ = 0;
  std::string fingerprint_;
};

}  // namespace finetune
