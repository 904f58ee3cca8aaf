// SPDX-License-Identifier: MIT
#include "task/metrics/calibration_file.h"

#include <ATen/ops/log_softmax.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "finetune/base/model_files.h"
#include "task/metrics/calibration.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShares = 20;  // steps of the coverage

// An answer: the probability of the most probable option, and whether that is right.
struct Answer {
  double confidence = 0.0;
  bool is_right = false;
};

Answer answer_of(std::span<const double> logs, std::span<const float> target, double temperature) {
  const auto best = std::ranges::max_element(logs);
  const auto wanted = std::ranges::max_element(target);
  double sum = 0.0;
  for (const double one : logs) sum += std::exp((one - *best) / temperature);
  return {1.0 / sum, best - logs.begin() == wanted - target.begin()};
}

// Of each bin of confidences that has answers: their number, mean confidence and share of right
// ones.
Json bins_of(const std::vector<Answer>& answers) {
  std::array<std::array<double, 3>, ProbabilityScores::kBins> sums = {};
  for (const Answer& answer : answers) {
    auto& [count, confidence, right] = sums[ProbabilityScores::bin_of(answer.confidence)];
    count += 1.0;
    confidence += answer.confidence;
    right += answer.is_right ? 1.0 : 0.0;
  }
  Json bins = Json::array();
  for (const auto& [count, confidence, right] : sums) {
    if (count == 0.0) continue;
    bins.push_back({{"samples", static_cast<int64_t>(count)},
                    {"confidence", confidence / count},
                    {"accuracy", right / count}});
  }
  return bins;
}

// The share of right answers among the surest 5 %, 10 %, ... of them.
Json coverage_of(std::vector<Answer> answers) {
  std::ranges::stable_sort(answers, std::greater(), &Answer::confidence);
  Json shares = Json::array();
  double right = 0.0;
  size_t counted = 0;
  for (size_t share = 1; share <= kShares; ++share) {
    const size_t end = std::max<size_t>(1, answers.size() * share / kShares);
    for (; counted < end; ++counted) right += answers[counted].is_right ? 1.0 : 0.0;
    shares.push_back(right / static_cast<double>(end));
  }
  return shares;
}

}  // namespace

void CalibrationFile::add(const Batch& batch, const Outputs& outputs) {
  if (outputs.targets == 0) return;
  samples_(batch, outputs, [this](const std::string& name, auto logs, auto target) {
    kinds_[name].add(logs, target);
  });
}

std::string CalibrationFile::text() const {
  Json kinds = Json::array();
  for (const auto& [name, samples] : kinds_) {
    const double temperature = samples.fit().temperature;
    const auto answers_at = [&samples = samples](double at) {
      std::vector<Answer> answers;
      samples.for_each(
          [&](auto logs, auto target) { answers.push_back(answer_of(logs, target, at)); });
      return answers;
    };
    const std::vector<Answer> after = answers_at(temperature);
    kinds.push_back({{"name", name},
                     {"samples", samples.size()},
                     {"temperature", temperature},
                     {"before", bins_of(answers_at(1.0))},
                     {"after", bins_of(after)},
                     {"coverage", coverage_of(after)}});
  }
  return Json{{"kinds", kinds}}.dump(2) + "\n";
}

void CalibrationFile::write(FileSystem& files, const std::string& output_dir) const {
  files.make_directories(output_dir);
  files.write_atomically(join_path(output_dir, std::string("eval") + kCalibrationEnd), text());
}

void for_each_class_sample(const Batch& batch, const Outputs& outputs,
                           const CalibrationFile::Take& take) {
  const Tensor logs = at::log_softmax(outputs.logits.to(at::kCPU, at::kDouble), -1).contiguous();
  const auto classes = static_cast<size_t>(logs.size(1));
  const auto* values = logs.const_data_ptr<double>();
  std::vector<float> target(classes);
  for (size_t i = 0; i < batch.classes.size(); ++i) {
    if (batch.classes[i] == kIgnoredLabel) continue;
    std::ranges::fill(target, 0.0F);
    target[static_cast<size_t>(batch.classes[i])] = 1.0F;
    take("", std::span(values + i * classes, classes), target);
  }
}

}  // namespace finetune
