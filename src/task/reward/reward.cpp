// SPDX-License-Identifier: MIT
#include "task/reward/reward.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/log_sigmoid.h>

#include <algorithm>
#include <limits>

#include "finetune/task/predictor.h"
#include "task/loss/head_task.h"
#include "task/loss/model_input.h"

namespace finetune {
namespace {

class RewardTask final : public HeadTask {
 public:
  RewardTask(Model& model, c10::Device device, double centering)
      : HeadTask(model, device), centering_(centering) {}

 private:
  [[nodiscard]] int64_t targets(const Batch& batch) const override { return batch.size(); }

  [[nodiscard]] Tensor summed_loss(const Tensor& rewards, const Batch& batch) const override {
    const Tensor chosen = rewards.select(1, 0);
    const Tensor rejected = rewards.select(1, 1);
    Tensor margin = chosen - rejected;
    if (!batch.values.empty()) margin = margin - to_device(batch.values, rewards.device());
    const Tensor loss = -at::log_sigmoid(margin).sum();
    return centering_ == 0.0 ? loss : loss + centering_ * (chosen + rejected).square().sum();
  }

  [[nodiscard]] Tensor logits(const Batch& batch,
                              const std::optional<DropoutStream>& dropout) override {
    return HeadTask::logits(batch, dropout).view({batch.size(), 2});
  }

  double centering_;
};

class RewardMetrics final : public Metrics {
 public:
  void add(const Batch& /*batch*/, const Outputs& outputs) override {
    const Tensor rewards = outputs.logits.to(at::kCPU, at::kFloat).contiguous();
    const auto* values = rewards.const_data_ptr<float>();
    for (int64_t i = 0; i < rewards.numel(); i += 2) {
      const double chosen = values[i];
      const double rejected = values[i + 1];
      ++pairs_;
      right_ += chosen > rejected ? 1 : 0;
      margin_ += chosen - rejected;
      sum_ += chosen + rejected;
      least_ = std::min({least_, chosen, rejected});
      most_ = std::max({most_, chosen, rejected});
    }
  }

  [[nodiscard]] std::vector<std::pair<std::string, double>> compute() const override {
    const auto pairs = static_cast<double>(pairs_);
    return {{"accuracy", static_cast<double>(right_) / pairs},
            {"margin", margin_ / pairs},
            {"min_reward", least_},
            {"mean_reward", sum_ / (2 * pairs)},
            {"max_reward", most_}};
  }

 private:
  int64_t pairs_ = 0, right_ = 0;
  double margin_ = 0.0, sum_ = 0.0;
  double least_ = std::numeric_limits<double>::infinity();
  double most_ = -std::numeric_limits<double>::infinity();
};

}  // namespace

std::unique_ptr<Task> make_reward_task(Model& model, c10::Device device, double centering) {
  return std::make_unique<RewardTask>(model, device, centering);
}

std::unique_ptr<Metrics> make_reward_metrics() { return std::make_unique<RewardMetrics>(); }

const TaskDescriptor& reward_descriptor() {
  static const TaskDescriptor descriptor = {
      .keys = reward_keys(),
      .rows = RowTask::kChat,
      .head = [](const TaskArgs&) { return std::optional(Head::kSequenceClassification); },
      .make_setup = make_reward_setup,
      .pipeline = {.name = "text-classification",
                   .class_suffix = "ForSequenceClassification",
                   .make_predictor =
                       [](const std::string& folder, const PredictOptions& options) {
                         const TaskDescriptor& classes = task_of("sequence_classification");
                         return classes.pipeline.make_predictor(folder, options);
                       }},
      .sample = "pair"};
  return descriptor;
}

}  // namespace finetune
