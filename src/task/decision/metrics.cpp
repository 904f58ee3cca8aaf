// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <span>
#include <string>

#include "task/decision/decision.h"
#include "task/metrics/calibration.h"
#include "task/metrics/calibration_file.h"
#include "task/metrics/temperature.h"

namespace finetune {
namespace {

// Calls `visit` with each question of a batch that has a target, and the logarithms of its options'
// probabilities.
void for_each_answer(
    const Batch& batch, const Outputs& outputs,
    const std::function<void(const DecisionGroup& group, std::span<const double> logs)>& visit) {
  const Tensor logs = at::log_softmax(outputs.logits.to(at::kCPU, at::kDouble), -1).contiguous();
  const auto* values = logs.const_data_ptr<double>();
  const BatchGroups groups(batch);
  for (const DecisionGroup& group : groups.groups) {
    if (!group.target.empty()) visit(group, {values, group.target.size()});
    values += logs.size(1);
  }
}

class DecisionMetrics final : public Metrics {
 public:
  explicit DecisionMetrics(bool calibrates) : calibrates_(calibrates) {}

  void add(const Batch& batch, const Outputs& outputs) override {
    for_each_answer(
        batch, outputs,
        [this](const DecisionGroup& group, std::span<const double> logs) { add(group, logs); });
  }

  [[nodiscard]] std::vector<std::pair<std::string, double>> compute() const override {
    std::vector<std::pair<std::string, double>> metrics = {
        {"accuracy", static_cast<double>(right_) / static_cast<double>(questions_)}};
    for (auto& metric : probabilities_.compute()) metrics.push_back(std::move(metric));
    // Before any data the names of all that there may be.
    if (scores_ > 0 || questions_ == 0)
      metrics.emplace_back("score_mae", distance_ / static_cast<double>(scores_));
    for (size_t type = 0; calibrates_ && type < kQuestionTypes; ++type) {
      if (fits_[type].size() < TemperatureFit::kFewest) continue;
      metrics.emplace_back("temperature_" + std::string(name_of(static_cast<QuestionType>(type))),
                           fits_[type].fit().temperature);
    }
    return metrics;
  }

 private:
  void add(const DecisionGroup& group, std::span<const double> row) {
    right_ += probabilities_.add(row, group.target) ? 1 : 0;
    if (calibrates_) fits_[static_cast<size_t>(group.type)].add(row, group.target);
    ++questions_;
    if (group.type != QuestionType::kScore) return;
    double distance = 0.0;
    for (size_t i = 0; i < row.size(); ++i) {
      distance +=
          (std::exp(row[i]) - static_cast<double>(group.target[i])) * static_cast<double>(i);
    }
    ++scores_;
    distance_ += std::abs(distance);
  }

  int64_t questions_ = 0, right_ = 0, scores_ = 0;
  double distance_ = 0.0;
  ProbabilityScores probabilities_;
  bool calibrates_;
  std::array<TemperatureFit, kQuestionTypes> fits_;
};

}  // namespace

std::unique_ptr<PredictionFiles> make_decision_files() {
  return std::make_unique<CalibrationFile>([](const Batch& batch, const Outputs& outputs,
                                              const CalibrationFile::Take& take) {
    for_each_answer(batch, outputs, [&](const DecisionGroup& group, std::span<const double> logs) {
      take(std::string(name_of(group.type)), logs, group.target);
    });
  });
}

std::unique_ptr<Metrics> make_decision_metrics(bool calibrates) {
  return std::make_unique<DecisionMetrics>(calibrates);
}

}  // namespace finetune
