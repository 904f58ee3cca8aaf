// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

namespace finetune {

// Returns Pearson's correlation of x and y, which have equal length; NaN for fewer than two values
// and if a side is constant, as in SciPy.
[[nodiscard]] double pearson(const std::vector<float>& x, const std::vector<float>& y);

// Returns Spearman's correlation: Pearson's of the ranks, where ties get their mean rank. NaN if a
// value is NaN.
[[nodiscard]] double spearman(const std::vector<float>& x, const std::vector<float>& y);

// Returns the area under the ROC curve: the probability that a positive sample has a higher score
// than a negative one, ties counting half. NaN if there is no positive or no negative sample.
// Requires: as many scores as flags, none of them NaN, fewer than 2^31.
[[nodiscard]] double roc_auc(const std::vector<double>& scores,
                             const std::vector<uint8_t>& is_positive);

struct RankingScores {
  double average_precision = 0.0;
  double reciprocal_rank = 0.0;  // of the first relevant one within the first `at`; 0: none
  double ndcg = 0.0;             // of the first `at`, with binary gains
};
// Scores documents in the order of a ranking, which may be cut off, of which `relevant` are
// relevant in all. All are 0 if none is.
[[nodiscard]] RankingScores score_ranking(const std::vector<uint8_t>& is_relevant, int64_t relevant,
                                          int64_t at);

// Scores and flags of samples with several columns, [samples, columns] each.
class RocAucColumns {
 public:
  void add(double score, bool is_positive) {
    scores_.push_back(score);
    positive_.push_back(is_positive ? 1 : 0);
  }
  // Returns the mean over the columns, as scikit-learn's average="macro"; NaN if a column has none.
  [[nodiscard]] double macro(int64_t columns) const;

 private:
  std::vector<double> scores_;
  std::vector<uint8_t> positive_;
};

}  // namespace finetune
