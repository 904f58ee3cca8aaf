// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace finetune {

// Temperature scaling (Guo et al. 2017, "On Calibration of Modern Neural Networks", section 4.2):
// the divisor of all scores at which their softmax has the least cross entropy with the targets. It
// changes no answer, only how sure it is.
class TemperatureFit {
 public:
  static constexpr double kLeast = 0.5, kMost = 5.0;
  static constexpr int64_t kFewest = 10;  // samples of which one is fitted

  // One sample: the scores of its options, and the probability of each. Requires: as many.
  void add(std::span<const double> scores, std::span<const float> target);
  [[nodiscard]] int64_t size() const { return std::ssize(ends_); }
  // Calls `visit` with the scores and the target of each sample, in the order of add().
  template <class Visit>
  void for_each(const Visit& visit) const {
    size_t begin = 0;
    for (const size_t end : ends_) {
      visit(std::span(scores_).subspan(begin, end - begin),
            std::span(targets_).subspan(begin, end - begin));
      begin = end;
    }
  }

  struct Result {
    double temperature = 1.0;
    bool is_bound = false;  // the best one is beyond kLeast or kMost
  };
  // By Newton's method on the inverse, in which the cross entropy is convex. 1 for fewer than
  // kFewest samples.
  [[nodiscard]] Result fit() const;

 private:
  // First and second derivative of the cross entropy, of all samples together.
  struct Slope {
    double first = 0.0, second = 0.0;
  };
  [[nodiscard]] Slope slope(double inverse) const;

  std::vector<double> scores_;
  std::vector<float> targets_;
  std::vector<size_t> ends_;  // of each sample in both
};

}  // namespace finetune
