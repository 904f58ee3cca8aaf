// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "finetune/base/error.h"
#include "task/loss/model_input.h"
#include "task/preference/pair_task.h"

namespace finetune {
namespace {

// The first or the second row of each sample, as samples of one row.
Batch rows_of_samples(const Batch& batch, int64_t which) {
  Batch rows;
  rows.rows = batch.size();
  rows.length = batch.length;
  rows.full_rows = batch.full_rows / batch.choices;
  rows.first_position = batch.first_position / batch.choices;
  const auto take = [&](const auto& from, auto& to) {
    for (int64_t sample = 0; sample < batch.size() && !from.empty(); ++sample) {
      const auto begin = from.begin() + (sample * batch.choices + which) * batch.length;
      to.insert(to.end(), begin, begin + batch.length);
    }
  };
  take(batch.input_ids, rows.input_ids);
  take(batch.attention_mask, rows.attention_mask);
  take(batch.token_type_ids, rows.token_type_ids);
  take(batch.labels, rows.labels);
  rows.tokens = std::ranges::count(rows.attention_mask, 1);
  return rows;
}

class Kto final : public PairTask {
 public:
  Kto(Model& model, c10::Device device, const KtoOptions& options)
      : PairTask(kto_keys(), model, device, options.drops), options_(options) {}

  [[nodiscard]] int64_t terms() const override { return 1; }
  [[nodiscard]] std::vector<std::string> measures() const override {
    std::vector<std::string> names = PairTask::measures();
    for (const MeasureDifference& one : kto_differences()) std::erase(names, one.name);
    return names;
  }
  [[nodiscard]] std::vector<MeasureDifference> measure_differences() const override {
    return kto_differences();
  }
  [[nodiscard]] std::vector<int64_t> count_targets(const Batch& batch) const override {
    const int64_t desirable = std::ranges::count(batch.classes, 1);
    const int64_t others = batch.size() - desirable;
    return {batch.size(), desirable, others, desirable, others, batch.size()};
  }

  [[nodiscard]] bool has_first_pass() const override { return options_.estimates_divergence; }

  // [rows, 1]: of each sample's second row the log ratio to the reference.
  [[nodiscard]] Tensor first_pass(const Batch& batch, const TrainingPass& pass) override {
    const Tensor ratios = compared(batch, 1, pass.dropout).ratios();
    return at::stack({at::zeros_like(ratios), ratios}, 1).view({batch.rows, 1});
  }

  void couple(const Tensor& results) override {
    is_whole_ = !results.defined();
    if (!is_whole_) divergence_ = divergence_of(results);
  }

  std::vector<Tensor> loss_sums(const Batch& batch, const TrainingPass& pass) override {
    if (is_whole_) {
      const c10::NoGradGuard no_grad;
      divergence_ = divergence_of(first_pass(batch, pass));
      is_whole_ = false;
    }
    return sums_with(divergence_, compared(batch, 0, pass.dropout), batch);
  }

 private:
  // Of an evaluation: in one pass, with the divergence of the batch.
  [[nodiscard]] std::vector<Tensor> sums_of(const Batch& batch,
                                            const std::optional<DropoutStream>& dropout) override {
    const Tensor reference = reference_of(batch);
    const Tensor log_probs = scores_of(batch, dropout).answers.log_probs;
    const double divergence = has_first_pass() ? divergence_of(log_probs - reference) : 0.0;
    return sums_with(divergence,
                     {.log_probs = log_probs.select(1, 0), .reference = reference.select(1, 0)},
                     batch);
  }

  // Log probabilities of one row of each sample, [samples].
  struct Compared {
    Tensor log_probs, reference;
    [[nodiscard]] Tensor ratios() const { return log_probs - reference; }
  };

  [[nodiscard]] Compared compared(const Batch& batch, int64_t which,
                                  const std::optional<DropoutStream>& dropout) {
    std::optional<DropoutStream> stream = dropout;  // of rows that are one of each sample
    if (stream) stream->first_position /= batch.choices;
    const Batch rows = rows_of_samples(batch, which);
    // Before the model's own pass, so that what that keeps is not kept meanwhile.
    Tensor reference_of_rows = options_.computes_reference ? base_of(rows).view({-1})
                                                           : reference_of(batch).select(1, which);
    return {.log_probs = log_probs_of(rows, stream), .reference = std::move(reference_of_rows)};
  }

  [[nodiscard]] Tensor base_of(const Batch& batch) {
    return reference(batch, /*without_adapter=*/true).to(device());
  }

  // The log probabilities of both rows, [samples, 2].
  [[nodiscard]] Tensor reference_of(const Batch& batch) {
    if (options_.computes_reference) return base_of(batch);
    FT_CHECK(std::ssize(batch.values) == 2 * batch.size(),
             "each answer has the reference's values");
    return to_device(batch.values, device()).view({batch.size(), 2});
  }

  // Of the log ratios of the rows, [rows, 1] or [samples, 2].
  static double divergence_of(const Tensor& rows) {
    return std::max(0.0, rows.view({-1, 2}).select(1, 1).mean().item<double>());
  }

  // `answers`: the first row of each sample.
  [[nodiscard]] std::vector<Tensor> sums_with(double divergence, const Compared& answers,
                                              const Batch& batch) const {
    std::vector<float> labels(batch.classes.begin(), batch.classes.end());
    const Tensor is_desirable = to_device(labels, device());
    const Tensor others = 1.0 - is_desirable;
    const Tensor rewards = options_.beta * answers.ratios();
    // 1 - sigmoid(beta (ratio - KL)), and with the other sign (eqs. 7 and 8).
    const Tensor sides = (2.0 * is_desirable - 1.0) * (rewards - options_.beta * divergence);
    const Tensor weights =
        options_.desirable_weight * is_desirable + options_.undesirable_weight * others;
    const Tensor losses = weights * (1.0 - at::sigmoid(sides));
    report_faults(losses, batch);
    const Tensor own = rewards.detach();
    const Tensor log_probs = answers.log_probs.detach();
    return {losses.sum(),
            (own * is_desirable).sum(),
            (own * others).sum(),
            (log_probs * is_desirable).sum(),
            (log_probs * others).sum(),
            at::full({}, divergence * static_cast<double>(batch.size()), own.options())};
  }

  KtoOptions options_;
  double divergence_ = 0.0;
  bool is_whole_ = false;  // the next batch is the whole update
};

}  // namespace

std::vector<MeasureDifference> kto_differences() {
  return {{.name = "rewards/margins", .first = "rewards/chosen", .second = "rewards/rejected"}};
}

std::unique_ptr<Task> make_kto_task(Model& model, c10::Device device, const KtoOptions& options) {
  return std::make_unique<Kto>(model, device, options);
}

}  // namespace finetune
