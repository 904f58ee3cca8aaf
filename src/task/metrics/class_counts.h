// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace finetune {

// The counts of precision, recall and F1: correct predictions, all predictions, all true labels. 0
// instead of 0 / 0, as in scikit-learn and seqeval.
struct Hits {
  int64_t hits = 0;
  int64_t predicted = 0;
  int64_t there = 0;

  [[nodiscard]] double precision() const { return share(hits, predicted); }
  [[nodiscard]] double recall() const { return share(hits, there); }
  [[nodiscard]] double f1() const { return share(2 * hits, predicted + there); }

 private:
  static double share(int64_t part, int64_t whole) {
    return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
  }
};

// Predicted and true classes of samples.
class ClassCounts {
 public:
  // Requires: 0 <= predicted < classes, 0 <= there.
  void add(int64_t classes, int64_t predicted, int64_t there);

  [[nodiscard]] double accuracy() const;  // NaN without samples, like the others
  [[nodiscard]] double matthews_correlation() const;
  // For two classes the value of class 1, else the mean over the classes that occur.
  [[nodiscard]] double average(double (Hits::*of)() const) const;

 private:
  std::vector<Hits> classes_;
  int64_t samples_ = 0;
  int64_t hits_ = 0;
};

}  // namespace finetune
