// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

namespace finetune {

// The area under the receiver operating characteristic: the chance that a positive sample has a
// higher score than a negative one, ties counting half. NaN where one of the two is missing.
// Requires: as many scores as flags, none of them NaN, fewer than 2^31.
[[nodiscard]] double roc_auc(const std::vector<double>& scores,
                             const std::vector<uint8_t>& is_positive);

// Scores and truths of samples with several columns, [samples, columns] each.
class RocAucColumns {
 public:
  void add(double score, bool is_positive) {
    scores_.push_back(score);
    positive_.push_back(is_positive ? 1 : 0);
  }
  // The mean over the columns, as scikit-learn's average="macro"; NaN where one has none.
  [[nodiscard]] double macro(int64_t columns) const;

 private:
  std::vector<double> scores_;
  std::vector<uint8_t> positive_;
};

}  // namespace finetune
