// SPDX-License-Identifier: MIT
#include "task/multiple_choice/multiple_choice.h"
#include "task/predict/result_lines.h"

namespace finetune {
namespace {

class ChoiceResults final : public ResultLines {
 public:
  ChoiceResults() : ResultLines("probability") {}

 private:
  [[nodiscard]] std::string prediction(std::span<const float> scores) const override {
    return std::to_string(best_of(scores));
  }
  void rate(const Batch& batch, size_t row, std::span<const float> scores,
            int64_t sample) override {
    if (batch.classes.empty() || batch.classes[row] == kIgnoredLabel) return;
    rate_class(sample, scores, static_cast<size_t>(batch.classes[row]),
               [](size_t choice) { return choice; });
  }
};

}  // namespace

std::unique_ptr<PredictionFiles> make_multiple_choice_files() {
  return std::make_unique<ChoiceResults>();
}

}  // namespace finetune
