// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>

#include "task/loss/head_task.h"
#include "task/loss/model_input.h"
#include "task/question_answering/question_answering.h"

namespace finetune {
namespace {

constexpr double kHalf = 0.5;  // the loss is the mean of both ends' losses

class QuestionAnswering final : public Task {
 public:
  QuestionAnswering(Model& model, c10::Device device) : model_(model), device_(device) {}

  [[nodiscard]] int64_t terms() const override { return 2; }

  [[nodiscard]] std::vector<int64_t> count_targets(const Batch& batch) const override {
    return {count_known(positions(batch.starts, batch)), count_known(positions(batch.ends, batch))};
  }

  std::vector<Tensor> loss_sums(const Batch& batch, const TrainingPass& pass) override {
    const std::vector<int64_t> targets = count_targets(batch);
    if (targets[0] + targets[1] == 0) return {Tensor(), Tensor()};
    return losses(logits(batch, pass.dropout), batch, targets);
  }

  Outputs evaluate(const Batch& batch) override {
    const c10::NoGradGuard no_grad;
    const std::vector<int64_t> targets = count_targets(batch);
    Outputs outputs{.logits = logits(batch, std::nullopt),
                    .targets = std::max(targets[0], targets[1])};
    const std::vector<Tensor> sums = losses(outputs.logits, batch, targets);
    for (size_t end = 0; end < 2; ++end) {
      if (targets[end] == 0) continue;
      outputs.loss += sums[end].item<double>() / static_cast<double>(targets[end]);
    }
    return outputs;
  }

 private:
  // As in transformers, positions after the end of a truncated window are ignored.
  static std::vector<int64_t> positions(std::vector<int64_t> ends, const Batch& batch) {
    for (int64_t& end : ends) {
      if (end == kIgnoredLabel || end >= batch.length) {
        end = kIgnoredLabel;
      } else {
        end = std::max<int64_t>(end, 0);
      }
    }
    return ends;
  }

  // Returns [rows, length, 2].
  Tensor logits(const Batch& batch, const std::optional<DropoutStream>& dropout) {
    return real_rows(model_.logits(make_model_input(batch, device_, dropout)), batch)
        .to(at::kFloat);
  }

  std::vector<Tensor> losses(const Tensor& logits, const Batch& batch,
                             const std::vector<int64_t>& targets) const {
    std::vector<Tensor> sums(2);
    const std::array ends = {&batch.starts, &batch.ends};
    for (size_t end = 0; end < 2; ++end) {
      if (targets[end] == 0) continue;
      const Tensor indices = to_device(positions(*ends[end], batch), device_);
      const Tensor scores = logits.select(-1, static_cast<int64_t>(end));
      sums[end] =
          kHalf * at::cross_entropy_loss(scores, indices, {}, at::Reduction::Sum, kIgnoredLabel);
    }
    return sums;
  }

  Model& model_;
  c10::Device device_;
};

}  // namespace

std::unique_ptr<Task> make_question_answering_task(Model& model, c10::Device device) {
  return std::make_unique<QuestionAnswering>(model, device);
}

}  // namespace finetune
