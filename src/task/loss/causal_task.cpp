// SPDX-License-Identifier: MIT
#include <c10/core/GradMode.h>

#include "finetune/task/words_loss.h"
#include "finetune/tensor/device.h"
#include "task/loss/masked_words.h"
#include "task/loss/model_input.h"
#include "task/loss/words_task.h"

namespace finetune {
namespace {

// Like masked language modelling, but the label of each token is the next token.
class CausalLm final : public Task {
 public:
  CausalLm(Model& model, c10::Device device, const LossOptions& options)
      : model_(model),
        device_(device),
        score_options_({.label_smoothing_factor = options.label_smoothing_factor,
                        .entropy = options.measures_entropy}),
        words_(make_masked_lm_task(model, device, options)) {}

  [[nodiscard]] int64_t terms() const override { return words_->terms(); }
  [[nodiscard]] std::vector<int64_t> count_targets(const Batch& batch) const override {
    return words_->count_targets(batch);
  }
  std::vector<Tensor> loss_sums(const Batch& batch, const TrainingPass& pass) override {
    return words_->loss_sums(batch, pass);
  }

  // Does not return logits: every token is a target, so they would be larger than everything else.
  Outputs evaluate(const Batch& batch) override {
    if (batch.targets == 0) return {};
    const c10::NoGradGuard no_grad;
    const MaskedWords words(batch, compiles_shapes(device_));
    const ModelInput input = make_model_input(batch, device_, std::nullopt, /*is_causal=*/true);
    const WordScores scores = score_words(model_, input, to_device(words.positions, device_),
                                          to_device(words.labels, device_), score_options_);
    return {.logits = {},
            .best = scores.best,
            .loss = scores.loss_sum / static_cast<double>(batch.targets),
            .targets = batch.targets,
            .entropy = scores.entropy_sum / static_cast<double>(batch.targets)};
  }

 private:
  Model& model_;
  c10::Device device_;
  WordScoreOptions score_options_;
  std::unique_ptr<Task> words_;
};

}  // namespace

std::unique_ptr<Task> make_causal_lm_task(Model& model, c10::Device device,
                                          const LossOptions& options) {
  return std::make_unique<CausalLm>(model, device, options);
}

}  // namespace finetune
