// SPDX-License-Identifier: MIT
#include "task/loss/head_task.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "finetune/base/error.h"
#include "task/loss/model_input.h"

namespace finetune {

std::vector<Tensor> HeadTask::loss_sums(const Batch& batch, const TrainingPass& pass) {
  if (targets(batch) == 0) return {Tensor()};
  return {summed_loss(logits(batch, pass.dropout), batch)};
}

Outputs HeadTask::evaluate(const Batch& batch) {
  const c10::NoGradGuard no_grad;
  Outputs outputs{.logits = logits(batch, std::nullopt), .targets = targets(batch)};
  if (outputs.targets > 0) {
    outputs.loss =
        summed_loss(outputs.logits, batch).item<double>() / static_cast<double>(outputs.targets);
  }
  return outputs;
}

Tensor HeadTask::logits(const Batch& batch, const std::optional<DropoutStream>& dropout) {
  ModelInput input = make_model_input(batch, device_, dropout);
  adjust(input, batch);
  return real_rows(model_.logits(input), batch).to(at::kFloat);
}

Tensor summed_cross_entropy(const Tensor& logits, const std::vector<int64_t>& classes,
                            const Batch& batch, double label_smoothing_factor,
                            const ClassWeights& weights) {
  FT_CHECK(logits.size(0) == static_cast<int64_t>(classes.size()), "a class for each row");
  const int64_t count = logits.size(1);
  const auto wrong = std::find_if(classes.begin(), classes.end(), [count](int64_t value) {
    return value != kIgnoredLabel && (value < 0 || value >= count);
  });
  if (wrong != classes.end()) {
    const auto position = static_cast<size_t>(wrong - classes.begin()) * batch.samples.size();
    const std::string sample =
        batch.samples.empty()
            ? "a sample"
            : "sample " + std::to_string(batch.samples[position / classes.size()]);
    throw Error(ErrorKind::kData, sample + " has class " + std::to_string(*wrong) +
                                      ", but the model has the classes 0 to " +
                                      std::to_string(count - 1) +
                                      "; compare the data's labels with the model's id2label");
  }
  FT_CHECK(weights.empty() || weights.tensor().numel() == count, "a weight for each class");
  const std::optional<Tensor> weight =
      weights.empty() ? std::nullopt : std::optional<Tensor>(weights.tensor());
  return at::cross_entropy_loss(logits, to_device(classes, logits.device()), weight,
                                at::Reduction::Sum, kIgnoredLabel, label_smoothing_factor);
}

int64_t count_known(const std::vector<int64_t>& classes) {
  return static_cast<int64_t>(classes.size()) -
         std::count(classes.begin(), classes.end(), kIgnoredLabel);
}

}  // namespace finetune
