// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <vector>

#include "finetune/task/task.h"
#include "task/class_weights.h"

namespace finetune {

// A task over a head's logits with one term: what its kinds have in common.
class HeadTask : public Task {
 public:
  HeadTask(HeadModel& model, c10::Device device) : model_(model), device_(device) {}

  [[nodiscard]] int64_t terms() const override { return 1; }
  [[nodiscard]] std::vector<int64_t> count_targets(const Batch& batch) const override {
    return {targets(batch)};
  }
  std::vector<Tensor> loss_sums(const Batch& batch, const TrainingPass& pass) override;
  Outputs evaluate(const Batch& batch) override;

 protected:
  [[nodiscard]] virtual int64_t targets(const Batch& batch) const = 0;
  // The summed loss of float32 logits as logits() makes them. Called with targets only.
  [[nodiscard]] virtual Tensor summed_loss(const Tensor& logits, const Batch& batch) const = 0;
  // In float32 whatever the model computes in, as the loss needs it.
  [[nodiscard]] virtual Tensor logits(const Batch& batch,
                                      const std::optional<DropoutStream>& dropout);
  [[nodiscard]] c10::Device device() const { return device_; }

 private:
  HeadModel& model_;
  c10::Device device_;
};

// Cross entropy summed over the classes other than kIgnoredLabel; logits [N, C], N classes, of
// which each sample of the batch has as many as any other. Throws Error(kData) for a class that the
// model does not have: on a GPU it would end the process.
[[nodiscard]] Tensor summed_cross_entropy(const Tensor& logits, const std::vector<int64_t>& classes,
                                          const Batch& batch, double label_smoothing_factor,
                                          const ClassWeights& weights = {});

// How many are not kIgnoredLabel.
[[nodiscard]] int64_t count_known(const std::vector<int64_t>& classes);

}  // namespace finetune
