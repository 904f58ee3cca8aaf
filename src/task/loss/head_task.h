// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <vector>

#include "finetune/task/task.h"
#include "task/loss/class_weights.h"

namespace finetune {

// The common part of tasks with one term over a head's logits.
class HeadTask : public Task {
 public:
  HeadTask(Model& model, c10::Device device) : model_(model), device_(device) {}

  [[nodiscard]] int64_t terms() const override { return 1; }
  [[nodiscard]] std::vector<int64_t> count_targets(const Batch& batch) const override {
    return {targets(batch)};
  }
  std::vector<Tensor> loss_sums(const Batch& batch, const TrainingPass& pass) override;
  Outputs evaluate(const Batch& batch) override;

 protected:
  [[nodiscard]] virtual int64_t targets(const Batch& batch) const = 0;
  // Returns the summed loss of the float32 logits that logits() returns. Called only if there are
  // targets.
  [[nodiscard]] virtual Tensor summed_loss(const Tensor& logits, const Batch& batch) const = 0;
  // Returns logits in float32, which the loss needs, whatever precision the model computes in.
  [[nodiscard]] virtual Tensor logits(const Batch& batch,
                                      const std::optional<DropoutStream>& dropout);
  // Adds to the model's input.
  virtual void adjust(ModelInput& /*input*/, const Batch& /*batch*/) const {}
  [[nodiscard]] c10::Device device() const { return device_; }

 private:
  Model& model_;
  c10::Device device_;
};

// Returns the summed cross entropy of logits [N, C] over the N classes that are not kIgnoredLabel.
// Every sample of the batch has the same number of classes. Throws Error(kData) for a class that
// the model does not have: on a GPU such a class would end the process.
[[nodiscard]] Tensor summed_cross_entropy(const Tensor& logits, const std::vector<int64_t>& classes,
                                          const Batch& batch, double label_smoothing_factor,
                                          const ClassWeights& weights = {});

// Returns the number of classes that are not kIgnoredLabel.
[[nodiscard]] int64_t count_known(const std::vector<int64_t>& classes);

}  // namespace finetune
