// SPDX-License-Identifier: MIT
#include "task/loss/head_task.h"
#include "task/multiple_choice/multiple_choice.h"

namespace finetune {
namespace {

class MultipleChoice final : public HeadTask {
 public:
  MultipleChoice(Model& model, c10::Device device, const LossOptions& options)
      : HeadTask(model, device), options_(options) {}

 private:
  [[nodiscard]] int64_t targets(const Batch& batch) const override {
    return count_known(batch.classes);
  }
  [[nodiscard]] Tensor summed_loss(const Tensor& logits, const Batch& batch) const override {
    return summed_cross_entropy(logits, batch.classes, batch, options_.label_smoothing_factor);
  }
  [[nodiscard]] Tensor logits(const Batch& batch,
                              const std::optional<DropoutStream>& dropout) override {
    return HeadTask::logits(batch, dropout).view({batch.size(), batch.choices});
  }

  LossOptions options_;
};

}  // namespace

std::unique_ptr<Task> make_multiple_choice_task(Model& model, c10::Device device,
                                                const LossOptions& options) {
  return std::make_unique<MultipleChoice>(model, device, options);
}

}  // namespace finetune
