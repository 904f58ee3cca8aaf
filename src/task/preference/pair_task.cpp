// SPDX-License-Identifier: MIT
#include "task/preference/pair_task.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/task/words_loss.h"
#include "finetune/tensor/device.h"
#include "task/loss/masked_words.h"
#include "task/loss/model_input.h"

namespace finetune {

// [rows] each.
struct PairTask::RowScores {
  Tensor answers, whole;  // log probabilities of answers' labels, and of all
  Tensor tokens;          // labels of answers, float32
};

Outputs PairTask::evaluate(const Batch& batch) {
  const c10::NoGradGuard no_grad;
  const std::vector<Tensor> sums = sums_of(batch, std::nullopt);
  const std::vector<int64_t> counts = count_targets(batch);
  Outputs outputs;
  outputs.targets = batch.size();
  for (size_t i = 0; i < sums.size(); ++i) {
    const double mean =
        counts[i] > 0 ? sums[i].item<double>() / static_cast<double>(counts[i]) : 0.0;
    const bool is_term = i < static_cast<size_t>(terms());
    if (is_term) outputs.loss += mean;
    (is_term ? outputs.terms : outputs.measures).push_back({.mean = mean, .targets = counts[i]});
  }
  return outputs;
}

Tensor PairTask::reference(const Batch& batch, bool without_adapter) {
  const c10::NoGradGuard no_grad;
  ModelInput input = input_of(batch, std::nullopt);
  input.without_adapter = without_adapter;
  return rows_of(batch, input).answers.view({batch.size(), batch.choices}).cpu();
}

PairTask::BatchScores PairTask::scores_of(const Batch& batch,
                                          const std::optional<DropoutStream>& dropout) {
  const RowScores rows = rows_of(batch, input_of(batch, dropout));
  const auto by_pair = [&](const Tensor& values) { return values.view({batch.size(), 2}); };
  return {.answers = {.log_probs = by_pair(rows.answers), .tokens = by_pair(rows.tokens)},
          .chosen = by_pair(rows.whole).select(1, 0)};
}

Tensor PairTask::log_probs_of(const Batch& batch, const std::optional<DropoutStream>& dropout) {
  return rows_of(batch, input_of(batch, dropout)).answers;
}

ModelInput PairTask::input_of(const Batch& batch,
                              const std::optional<DropoutStream>& dropout) const {
  return make_model_input(batch, device_, drops_ ? dropout : std::nullopt, /*is_causal=*/true);
}

void PairTask::report_faults(const Tensor& losses, const Batch& batch) {
  if (!losses.is_cpu()) return;
  const Tensor values = losses.detach().to(at::kFloat).contiguous();
  for (int64_t i = 0; i < values.numel(); ++i) {
    if (std::isfinite(values.const_data_ptr<float>()[i])) continue;
    log::warning(
        format_text("the loss of pair {} (from 0) is not finite: the log probabilities "
                    "of its answers are not, or differ too much",
                    batch.samples.empty() ? i : batch.samples[static_cast<size_t>(i)]));
  }
}

PairTask::RowScores PairTask::rows_of(const Batch& batch, const ModelInput& input) {
  const MaskedWords words(batch, compiles_shapes(device_));
  words.check_labels(model_.config().vocab_size);
  std::vector<float> counts(static_cast<size_t>(batch.rows), 0.0F);
  std::vector<float> answers;  // [labels], 1 of an answer's
  std::vector<float> whole;    // [labels], 1 of a row's, 0 of fillers
  for (size_t i = 0; i < words.positions.size(); ++i) {
    const int64_t row = words.positions[i] / batch.length;
    const bool is_there = words.labels[i] != kIgnoredLabel;
    const bool is_answer =
        is_there && words.positions[i] % batch.length >= first_label(batch, row / batch.choices);
    whole.push_back(is_there ? 1.0F : 0.0F);
    answers.push_back(is_answer ? 1.0F : 0.0F);
    counts[static_cast<size_t>(row)] += answers.back();
  }
  const Tensor positions = to_device(words.positions, device_);
  const Tensor log_probs =
      token_log_probs(model_, input, positions, to_device(words.labels, device_));
  // No two labels have one position, so the order of sums is that of each row's tokens.
  const auto sum_rows = [&](const std::vector<float>& mask) {
    const Tensor values = log_probs * to_device(mask, device_);
    const Tensor cells = at::zeros({batch.rows * batch.length}, values.options());
    return cells.index_add(0, positions, values).view({batch.rows, batch.length}).sum(1);
  };
  RowScores scores;
  scores.answers = sum_rows(answers);
  scores.whole = answers == whole ? scores.answers : sum_rows(whole);
  scores.tokens = to_device(counts, device_);
  return scores;
}

}  // namespace finetune
