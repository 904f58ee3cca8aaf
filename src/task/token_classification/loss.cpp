// SPDX-License-Identifier: MIT
#include "task/loss/head_task.h"
#include "task/token_classification/token_classification.h"

namespace finetune {
namespace {

class TokenClassification final : public HeadTask {
 public:
  TokenClassification(Model& model, c10::Device device, const LossOptions& options)
      : HeadTask(model, device), options_(options), weights_(options.class_weights, device) {}

 private:
  [[nodiscard]] int64_t targets(const Batch& batch) const override {
    return weights_.sum(batch.labels);
  }
  [[nodiscard]] Tensor summed_loss(const Tensor& logits, const Batch& batch) const override {
    return summed_cross_entropy(logits.flatten(0, 1), batch.labels, batch,
                                options_.label_smoothing_factor, weights_);
  }

  LossOptions options_;
  ClassWeights weights_;
};

}  // namespace

std::unique_ptr<Task> make_token_classification_task(Model& model, c10::Device device,
                                                     const LossOptions& options) {
  return std::make_unique<TokenClassification>(model, device, options);
}

}  // namespace finetune
