// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "finetune/task/metrics.h"

namespace finetune {

// How good probabilities are, and whether they are as sure as they are right.
class ProbabilityScores {
 public:
  // One sample: the logarithms of its probabilities, and the probability that each should have.
  // Returns whether the most probable one is right.
  bool add(std::span<const double> logs, std::span<const float> target);
  // brier (mean squared distance), ece (the expected calibration error in 15 bins of equal width:
  // Guo et al. 2017, equation 3) and nll.
  [[nodiscard]] std::vector<std::pair<std::string, double>> compute() const;

  static constexpr int64_t kBins = 15;
  // Bins are (low, high], the first one has 0, too.
  [[nodiscard]] static size_t bin_of(double confidence);

 private:
  struct Bin {
    double confidence = 0.0, right = 0.0;
  };
  std::array<Bin, kBins> bins_ = {};
  int64_t count_ = 0;
  double brier_ = 0.0, nll_ = 0.0;
};

// The metrics of samples with one class each, `own` first, then those of their probabilities and
// the temperature at which these are best.
[[nodiscard]] std::unique_ptr<Metrics> with_calibration(std::unique_ptr<Metrics> own);

// Returns the temperature in a folder's calibration.json; nullopt if the file is missing. Throws
// Error(kData).
[[nodiscard]] std::optional<double> read_calibration(const std::string& folder);
[[nodiscard]] std::string calibration_text(double temperature);
// Warns if a temperature is at its bound; `what`: "choice questions".
void warn_of_bound(const std::string& what, double temperature);

}  // namespace finetune
