// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <cmath>

#include "task/decision/decision.h"
#include "task/metrics/temperature.h"

namespace finetune {
namespace {

// The expected calibration error (Guo et al. 2017, equation 3): how far the mean confidence of each
// bin is from its accuracy.
class CalibrationError {
 public:
  void add(double confidence, bool is_right) {
    // Bins are (low, high], the first one has 0, too.
    const auto bin = static_cast<int64_t>(std::ceil(confidence * kBins)) - 1;
    Bin& to = bins_[static_cast<size_t>(std::clamp<int64_t>(bin, 0, kBins - 1))];
    to.confidence += confidence;
    to.right += is_right ? 1.0 : 0.0;
    ++count_;
  }
  [[nodiscard]] double value() const {
    double error = 0.0;
    for (const Bin& bin : bins_) error += std::abs(bin.confidence - bin.right);
    return error / static_cast<double>(count_);
  }

 private:
  static constexpr int64_t kBins = 15;
  struct Bin {
    double confidence = 0.0, right = 0.0;
  };
  std::array<Bin, kBins> bins_ = {};
  int64_t count_ = 0;
};

class DecisionMetrics final : public Metrics {
 public:
  explicit DecisionMetrics(bool calibrates) : calibrates_(calibrates) {}

  void add(const Batch& batch, const Outputs& outputs) override {
    const Tensor logs = at::log_softmax(outputs.logits.to(at::kCPU, at::kDouble), -1).contiguous();
    const auto* values = logs.const_data_ptr<double>();
    const BatchGroups groups(batch);
    for (const DecisionGroup& group : groups.groups) {
      if (!group.target.empty()) add(group, values);
      values += logs.size(1);
    }
  }

  [[nodiscard]] std::vector<std::pair<std::string, double>> compute() const override {
    const auto questions = static_cast<double>(questions_);
    std::vector<std::pair<std::string, double>> metrics = {
        {"accuracy", static_cast<double>(right_) / questions},
        {"brier", brier_ / questions},
        {"ece", calibration_.value()},
        {"nll", nll_ / questions}};
    if (scores_ > 0) metrics.emplace_back("score_mae", distance_ / static_cast<double>(scores_));
    for (size_t type = 0; calibrates_ && type < kQuestionTypes; ++type) {
      if (fits_[type].size() < TemperatureFit::kFewest) continue;
      metrics.emplace_back("temperature_" + std::string(name_of(static_cast<QuestionType>(type))),
                           fits_[type].fit().temperature);
    }
    return metrics;
  }

 private:
  void add(const DecisionGroup& group, const double* logs) {
    const size_t count = group.target.size();
    const auto best = static_cast<size_t>(std::max_element(logs, logs + count) - logs);
    const auto wanted =
        static_cast<size_t>(std::ranges::max_element(group.target) - group.target.begin());
    double level = 0.0;
    for (size_t i = 0; i < count; ++i) {
      const double p = std::exp(logs[i]);
      const auto target = static_cast<double>(group.target[i]);
      if (target > 0.0) nll_ -= target * logs[i];
      brier_ += (p - target) * (p - target);
      level += (p - target) * static_cast<double>(i);
    }
    if (calibrates_) fits_[static_cast<size_t>(group.type)].add({logs, count}, group.target);
    ++questions_;
    right_ += best == wanted ? 1 : 0;
    calibration_.add(std::exp(logs[best]), best == wanted);
    if (group.type != QuestionType::kScore) return;
    ++scores_;
    distance_ += std::abs(level);
  }

  int64_t questions_ = 0, right_ = 0, scores_ = 0;
  double brier_ = 0.0, nll_ = 0.0, distance_ = 0.0;
  CalibrationError calibration_;
  bool calibrates_;
  std::array<TemperatureFit, kQuestionTypes> fits_;
};

}  // namespace

std::unique_ptr<Metrics> make_decision_metrics(bool calibrates) {
  return std::make_unique<DecisionMetrics>(calibrates);
}

}  // namespace finetune
