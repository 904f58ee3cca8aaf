// SPDX-License-Identifier: MIT
#include "task/multiple_choice/multiple_choice.h"
#include "task/result_lines.h"

namespace finetune {
namespace {

class ChoiceResults final : public ResultLines {
  [[nodiscard]] std::string prediction(std::span<const float> scores) const override {
    return std::to_string(best_of(scores));
  }
};

}  // namespace

std::unique_ptr<PredictionFiles> make_multiple_choice_files() {
  return std::make_unique<ChoiceResults>();
}

}  // namespace finetune
