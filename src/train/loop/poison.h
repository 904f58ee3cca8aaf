// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "finetune/optim/optimizer.h"
#include "train/loop/gradient_sum.h"

// Fault injection for tests: makes a number of a step NaN or Inf.
// FINETUNE_TEST_POISON=<loss|gradient|weight|moment>@<step>[,...].
namespace finetune {

enum class Poisoned { kLoss, kGradient, kWeight, kMoment };

class Poison {
 public:
  // Throws Error(kUsage) if the text does not have that form.
  explicit Poison(const std::string& text);
  static Poison from_environment();  // empty if the variable is not set

  [[nodiscard]] bool empty() const { return positions_.empty(); }

  [[nodiscard]] bool is_for(Poisoned what, int64_t step) const;
  // Overwrite the first element of the first tensor of that kind.
  void spoil_gradient(ParameterStore& parameters, int64_t step) const;
  void spoil_state(Optimizer& optimizer, int64_t step) const;

 private:
  struct Position {
    Poisoned what;
    int64_t step;
  };
  std::vector<Position> positions_;
};

// Returns `sum` with the losses and gradients that FINETUNE_TEST_POISON asks for; without it, `sum`
// itself. `run` must outlive it.
[[nodiscard]] std::unique_ptr<GradientSum> with_test_faults(std::unique_ptr<GradientSum> sum,
                                                            TrainingRun& run);

}  // namespace finetune
