// SPDX-License-Identifier: MIT
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/mse_loss.h>

#include "finetune/base/error.h"
#include "task/loss/head_task.h"
#include "task/loss/model_input.h"
#include "task/sequence_classification/sequence_classification.h"

namespace finetune {
namespace {

class SingleLabel final : public HeadTask {
 public:
  SingleLabel(Model& model, c10::Device device, const LossOptions& options)
      : HeadTask(model, device), options_(options), weights_(options.class_weights, device) {}

 private:
  [[nodiscard]] int64_t targets(const Batch& batch) const override {
    return weights_.sum(batch.classes);
  }
  [[nodiscard]] Tensor logits(const Batch& batch,
                              const std::optional<DropoutStream>& dropout) override {
    const Tensor logits = HeadTask::logits(batch, dropout);
    return dropout || options_.temperature == 1.0 ? logits : logits / options_.temperature;
  }
  [[nodiscard]] Tensor summed_loss(const Tensor& logits, const Batch& batch) const override {
    return summed_cross_entropy(logits, batch.classes, batch, options_.label_smoothing_factor,
                                weights_);
  }

  LossOptions options_;
  ClassWeights weights_;
};

// Several labels or numbers per sample: a value for each output.
class Values final : public HeadTask {
 public:
  Values(Model& model, c10::Device device, bool numbers)
      : HeadTask(model, device), numbers_(numbers) {}

 private:
  [[nodiscard]] int64_t targets(const Batch& batch) const override {
    return static_cast<int64_t>(batch.values.size());
  }
  [[nodiscard]] Tensor summed_loss(const Tensor& logits, const Batch& batch) const override {
    if (logits.numel() != targets(batch)) {
      throw Error(ErrorKind::kData,
                  "each sample has " + std::to_string(targets(batch) / batch.size()) +
                      " values, but the model has " + std::to_string(logits.size(1)) +
                      " outputs; set num_labels, or the model's id2label, to the number of values");
    }
    const Tensor values = to_device(batch.values, device()).view_as(logits);
    return numbers_
               ? at::mse_loss(logits, values, at::Reduction::Sum)
               : at::binary_cross_entropy_with_logits(logits, values, {}, {}, at::Reduction::Sum);
  }

  bool numbers_;
};

}  // namespace

std::unique_ptr<Task> make_sequence_classification_task(Model& model, c10::Device device,
                                                        ProblemType problem,
                                                        const LossOptions& options) {
  if (problem == ProblemType::kSingleLabel) {
    return std::make_unique<SingleLabel>(model, device, options);
  }
  return std::make_unique<Values>(model, device, problem == ProblemType::kRegression);
}

}  // namespace finetune
