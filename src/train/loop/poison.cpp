// SPDX-License-Identifier: MIT
#include "train/loop/poison.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <sstream>

#include "finetune/base/error.h"

namespace finetune {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Poisoned kind_of(const std::string& name) {
  if (name == "loss") return Poisoned::kLoss;
  if (name == "gradient") return Poisoned::kGradient;
  if (name == "weight") return Poisoned::kWeight;
  if (name == "moment") return Poisoned::kMoment;
  throw Error(ErrorKind::kUsage,
              "FINETUNE_TEST_POISON: '" + name + "' is none of loss, gradient, weight, moment");
}

void spoil(const Tensor& values, float number) {
  values.detach().flatten().narrow(0, 0, 1).fill_(number);
}

// Poisons the results of another sum.
class PoisonedSum final : public GradientSum {
 public:
  PoisonedSum(std::unique_ptr<GradientSum> sum, TrainingRun& run, Poison poison)
      : sum_(std::move(sum)), run_(run), poison_(std::move(poison)) {}

  [[nodiscard]] size_t at_once() const override { return sum_->at_once(); }
  void begin(const Update& update) override { sum_->begin(update); }
  [[nodiscard]] size_t rounds(const Update& update) const override { return sum_->rounds(update); }
  [[nodiscard]] bool continues(bool stops) override { return sum_->continues(stops); }
  bool add(std::span<const Batch> batches, const Backward& backward) override {
    return sum_->add(batches, backward);
  }
  void stop() override { sum_->stop(); }
  Summed finish() override {
    Summed summed = sum_->finish();
    if (summed.stopped) return summed;
    const int64_t step = run_.state.step + 1;
    if (poison_.is_for(Poisoned::kLoss, step)) {
      summed.loss = std::numeric_limits<double>::quiet_NaN();
    }
    poison_.spoil_gradient(run_.store(), step);
    return summed;
  }
  void clear() override { sum_->clear(); }

 private:
  std::unique_ptr<GradientSum> sum_;
  TrainingRun& run_;
  Poison poison_;
};

}  // namespace

std::unique_ptr<GradientSum> with_test_faults(std::unique_ptr<GradientSum> sum, TrainingRun& run) {
  Poison poison = Poison::from_environment();
  if (poison.empty()) return sum;
  return std::make_unique<PoisonedSum>(std::move(sum), run, std::move(poison));
}

Poison::Poison(const std::string& text) {
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    const size_t at = item.find('@');
    const std::string step = at == std::string::npos ? "" : item.substr(at + 1);
    if (step.empty() || step.size() > 9 ||
        step.find_first_not_of("0123456789") != std::string::npos) {
      throw Error(ErrorKind::kUsage, "FINETUNE_TEST_POISON: '" + item + "' is not <what>@<step>");
    }
    positions_.push_back({kind_of(item.substr(0, at)), std::stoll(step)});
  }
}

Poison Poison::from_environment() {
  const char* const text = std::getenv("FINETUNE_TEST_POISON");
  return Poison(text == nullptr ? "" : text);
}

bool Poison::is_for(Poisoned what, int64_t step) const {
  return std::ranges::any_of(positions_, [&](const Position& position) {
    return position.what == what && position.step == step;
  });
}

void Poison::spoil_gradient(ParameterStore& parameters, int64_t step) const {
  if (!is_for(Poisoned::kGradient, step)) return;
  for (const Parameter& parameter : parameters.parameters()) {
    if (!parameter.gradient.defined()) continue;
    spoil(parameter.gradient, kInfinity);
    return;
  }
}

void Poison::spoil_state(Optimizer& optimizer, int64_t step) const {
  if (is_for(Poisoned::kWeight, step)) {
    spoil(optimizer.parameters().parameters().front().weight, -kInfinity);
  }
  if (!is_for(Poisoned::kMoment, step)) return;
  for (const Optimizer::Slot& slot : optimizer.slots()) {
    for (const auto& [name, values] : slot.state) {
      if (!values.defined() || !values.is_floating_point()) continue;
      spoil(values, std::numeric_limits<float>::quiet_NaN());
      return;
    }
  }
}

}  // namespace finetune
