// SPDX-License-Identifier: MIT
#include "task/loss/words_task.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <c10/core/GradMode.h>

#include "finetune/task/words_loss.h"
#include "finetune/tensor/device.h"
#include "task/loss/masked_words.h"
#include "task/loss/model_input.h"

namespace finetune {
namespace {

// Counts the masked tokens whose most probable token is correct.
class MaskedLmMetrics final : public Metrics {
 public:
  explicit MaskedLmMetrics(const char* name) : name_(name) {}

  void add(const Batch& batch, const Outputs& outputs) override {
    if (outputs.targets == 0) return;
    const Tensor best = outputs.best.defined() ? outputs.best : outputs.logits.argmax(-1);
    MaskedWords words(batch);
    words.fill(best.numel());
    const Tensor labels = to_device(words.labels, best.device());
    correct_ += best.eq(labels).sum().item<int64_t>();
    targets_ += outputs.targets;
  }

  [[nodiscard]] std::vector<std::pair<std::string, double>> compute() const override {
    const auto share = static_cast<double>(correct_) / static_cast<double>(targets_);
    return {{name_, targets_ > 0 ? share : 0.0}};
  }

 private:
  const char* name_;
  int64_t correct_ = 0;
  int64_t targets_ = 0;
};

class MaskedLm final : public Task {
 public:
  MaskedLm(Model& model, c10::Device device, const LossOptions& options)
      : model_(model), device_(device), options_(options), is_causal_(is_causal(model.config())) {}

  [[nodiscard]] int64_t terms() const override { return 1; }

  [[nodiscard]] std::vector<int64_t> count_targets(const Batch& batch) const override {
    return {batch.targets};
  }

  // Cross entropy over the masked positions (Devlin et al. 2019, section 3.1). The head, which is
  // four fifths of a small model's work, runs only on these positions.
  std::vector<Tensor> loss_sums(const Batch& batch, const TrainingPass& pass) override {
    if (batch.targets == 0) return {Tensor()};
    const MaskedWords words(batch, compiles_shapes(device_));
    words.check_labels(model_.config().vocab_size);
    return {words_loss(model_, make_model_input(batch, device_, pass.dropout, is_causal_),
                       to_device(words.positions, device_), to_device(words.labels, device_),
                       {.label_smoothing_factor = options_.label_smoothing_factor,
                        .gradient_scale = pass.scale(0)})};
  }

  Outputs evaluate(const Batch& batch) override {
    if (batch.targets == 0) return {};
    const c10::NoGradGuard no_grad;
    const MaskedWords words(batch, compiles_shapes(device_));
    const Tensor logits = model_.logits(make_model_input(batch, device_, std::nullopt),
                                        to_device(words.positions, device_));
    const Tensor sum =
        at::cross_entropy_loss(logits, to_device(words.labels, device_), {}, at::Reduction::Sum,
                               kIgnoredLabel, options_.label_smoothing_factor);
    return {.logits = logits,
            .loss = sum.item<double>() / static_cast<double>(batch.targets),
            .targets = batch.targets};
  }

 private:
  Model& model_;
  c10::Device device_;
  LossOptions options_;
  bool is_causal_;
};

}  // namespace

std::unique_ptr<Task> make_masked_lm_task(Model& model, c10::Device device,
                                          const LossOptions& options) {
  return std::make_unique<MaskedLm>(model, device, options);
}

std::unique_ptr<Metrics> make_masked_lm_metrics(const char* name) {
  return std::make_unique<MaskedLmMetrics>(name);
}

}  // namespace finetune
