// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "finetune/task/prediction_files.h"
#include "task/metrics/temperature.h"

namespace finetune {

// eval_calibration.json: how sure a model is of its answers to the validation data and how often it
// is right, as it is and at the best temperature; and how often it is right about the answers of
// which it is surest. Keeps the scores of all samples, a few numbers each.
class CalibrationFile final : public PredictionFiles {
 public:
  // `kind`: which samples have a temperature together, "choice"; empty where all have.
  using Take = std::function<void(const std::string& kind, std::span<const double> logs,
                                  std::span<const float> target)>;
  // Calls `take` with each sample of a batch that has a target: the logarithms of its
  // probabilities, and what they should be.
  using Samples = std::function<void(const Batch& batch, const Outputs& outputs, const Take& take)>;

  explicit CalibrationFile(Samples samples) : samples_(std::move(samples)) {}
  void add(const Batch& batch, const Outputs& outputs) override;
  void write(FileSystem& files, const std::string& output_dir) const override;
  [[nodiscard]] std::string text() const;  // of the file

 private:
  Samples samples_;
  std::map<std::string, TemperatureFit> kinds_;
};

// The samples of one class each of which the logits [samples, classes] are, with a target in
// Batch::classes.
void for_each_class_sample(const Batch& batch, const Outputs& outputs,
                           const CalibrationFile::Take& take);

}  // namespace finetune
