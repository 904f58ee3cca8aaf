// SPDX-License-Identifier: MIT
#include "task/metrics/calibration.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/model_files.h"
#include "finetune/base/text.h"
#include "task/metrics/calibration_file.h"
#include "task/metrics/temperature.h"

namespace finetune {
namespace {

constexpr const char* kTemperature = "temperature";

class CalibrationMetrics final : public Metrics {
 public:
  explicit CalibrationMetrics(std::unique_ptr<Metrics> own) : own_(std::move(own)) {}

  void add(const Batch& batch, const Outputs& outputs) override {
    own_->add(batch, outputs);
    if (outputs.targets == 0) return;
    for_each_class_sample(batch, outputs, [this](const std::string&, auto logs, auto target) {
      scores_.add(logs, target);
      fit_.add(logs, target);
    });
  }

  [[nodiscard]] std::vector<std::pair<std::string, double>> compute() const override {
    auto metrics = own_->compute();
    for (auto& metric : scores_.compute()) metrics.push_back(std::move(metric));
    if (fit_.size() >= TemperatureFit::kFewest) {
      metrics.emplace_back(kTemperature, fit_.fit().temperature);
    }
    return metrics;
  }

 private:
  std::unique_ptr<Metrics> own_;
  ProbabilityScores scores_;
  TemperatureFit fit_;
};

}  // namespace

size_t ProbabilityScores::bin_of(double confidence) {
  const auto number = static_cast<int64_t>(std::ceil(confidence * kBins)) - 1;
  return static_cast<size_t>(std::clamp<int64_t>(number, 0, kBins - 1));
}

bool ProbabilityScores::add(std::span<const double> logs, std::span<const float> target) {
  const auto best = static_cast<size_t>(std::ranges::max_element(logs) - logs.begin());
  const auto wanted = static_cast<size_t>(std::ranges::max_element(target) - target.begin());
  for (size_t i = 0; i < target.size(); ++i) {
    const double p = std::exp(logs[i]);
    const auto should = static_cast<double>(target[i]);
    if (should > 0.0) nll_ -= should * logs[i];
    brier_ += (p - should) * (p - should);
  }
  const double confidence = std::exp(logs[best]);
  Bin& bin = bins_[bin_of(confidence)];
  bin.confidence += confidence;
  bin.right += best == wanted ? 1.0 : 0.0;
  ++count_;
  return best == wanted;
}

std::vector<std::pair<std::string, double>> ProbabilityScores::compute() const {
  const auto count = static_cast<double>(count_);
  double error = 0.0;
  for (const Bin& bin : bins_) error += std::abs(bin.confidence - bin.right);
  return {{"brier", brier_ / count}, {"ece", error / count}, {"nll", nll_ / count}};
}

std::unique_ptr<Metrics> with_calibration(std::unique_ptr<Metrics> own) {
  return std::make_unique<CalibrationMetrics>(std::move(own));
}

std::optional<double> read_calibration(const std::string& folder) {
  const std::string path = join_path(folder, kCalibrationFile);
  if (folder.empty() || !FileSystem::local().exists(path)) return std::nullopt;
  const nlohmann::ordered_json json =
      read_json_file(path, ErrorKind::kData, {.max_bytes = 1 << 20});
  const auto found = json.is_object() ? json.find(kTemperature) : json.end();
  const bool is_number = found != json.end() && found->is_number();
  if (is_number && found->get<double>() > 0.0 && std::isfinite(found->get<double>())) {
    return found->get<double>();
  }
  throw Error(ErrorKind::kData, path +
                                    ": has no temperature above 0; restore the file of the "
                                    "model, or delete it for probabilities without it");
}

std::string calibration_text(double temperature) {
  return nlohmann::ordered_json{{kTemperature, temperature}}.dump(2) + "\n";
}

void warn_of_bound(const std::string& what, double temperature) {
  if (temperature > TemperatureFit::kLeast && temperature < TemperatureFit::kMost) return;
  log::warning(
      format_text("the temperature of {} is at its bound, {}: the {} the model, the better for the "
                  "validation data; its probabilities are not calibrated",
                  what, format_double(temperature), temperature < 1.0 ? "surer" : "less sure"));
}

}  // namespace finetune
