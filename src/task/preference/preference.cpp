// SPDX-License-Identifier: MIT
#include "task/preference/preference.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/log_sigmoid.h>

#include <algorithm>

#include "finetune/base/error.h"
#include "task/generate/text_generation.h"
#include "task/loss/model_input.h"
#include "task/preference/pair_task.h"

namespace finetune {
namespace {

// Sums over pairs of rewards [pairs, 2] and log probabilities [pairs, 2], in the order of
// the measures of dpo.
std::vector<Tensor> pair_measures(const Tensor& rewards, const Tensor& log_probs) {
  const Tensor chosen = rewards.select(1, 0).detach();
  const Tensor rejected = rewards.select(1, 1).detach();
  const Tensor sums = log_probs.detach().sum(0);
  return {chosen.sum(),
          rejected.sum(),
          chosen.gt(rejected).to(at::kFloat).sum(),
          (chosen - rejected).sum(),
          sums[0],
          sums[1]};
}

class Dpo final : public PairTask {
 public:
  Dpo(Model& model, c10::Device device, const DpoOptions& options)
      : PairTask(dpo_keys(), model, device, options.drops), options_(options) {}

  [[nodiscard]] int64_t terms() const override { return 1; }
  [[nodiscard]] std::vector<int64_t> count_targets(const Batch& batch) const override {
    return std::vector<int64_t>(1 + dpo_keys().metric_names.size(), batch.size());
  }

 private:
  [[nodiscard]] std::vector<Tensor> sums_of(const Batch& batch,
                                            const std::optional<DropoutStream>& dropout) override {
    const Tensor reference = reference_of(batch);
    const PairScores scores = scores_of(batch, dropout).answers;
    const Tensor losses = dpo_losses(scores, reference, options_);
    report_faults(losses, batch);
    std::vector<Tensor> sums = {losses.sum()};
    for (Tensor& sum : measures_of(scores, reference)) sums.push_back(std::move(sum));
    return sums;
  }

  // Before the model's own pass, so that what that keeps is not kept meanwhile.
  [[nodiscard]] Tensor reference_of(const Batch& batch) {
    if (!has_reference(options_.loss)) return {};
    if (options_.computes_reference) return reference(batch, /*without_adapter=*/true).to(device());
    FT_CHECK(std::ssize(batch.values) == 2 * batch.size(), "each pair has the reference's values");
    return to_device(batch.values, device()).view({batch.size(), 2});
  }

  [[nodiscard]] std::vector<Tensor> measures_of(const PairScores& scores,
                                                const Tensor& reference) const {
    // TRL logs the mean of what its losses read.
    const bool has_means = options_.loss == DpoLoss::kSimpo;
    return pair_measures(dpo_rewards(scores, reference, options_),
                         has_means ? scores.log_probs / scores.tokens : scores.log_probs);
  }

  DpoOptions options_;
};

class Orpo final : public PairTask {
 public:
  Orpo(Model& model, c10::Device device, const OrpoOptions& options)
      : PairTask(orpo_keys(), model, device, options.drops), options_(options) {}

  [[nodiscard]] int64_t terms() const override { return 2; }
  [[nodiscard]] std::vector<int64_t> count_targets(const Batch& batch) const override {
    std::vector<int64_t> counts(2 + orpo_keys().metric_names.size(), batch.size());
    counts[0] = chosen_tokens(batch);
    counts[2 + kNll] = counts[0];
    return counts;
  }

 private:
  [[nodiscard]] std::vector<Tensor> sums_of(const Batch& batch,
                                            const std::optional<DropoutStream>& dropout) override {
    const BatchScores scores = scores_of(batch, dropout);
    const Tensor odds = log_odds(scores.answers);
    report_faults(odds, batch);
    std::vector<Tensor> sums = {-scores.chosen.sum(), -options_.beta * at::log_sigmoid(odds).sum()};
    for (Tensor& sum : measures_of(scores, odds)) sums.push_back(std::move(sum));
    return sums;
  }

  static constexpr size_t kNll = 6;  // the measure nll_loss

  [[nodiscard]] int64_t first_label(const Batch& batch, int64_t pair) const override {
    return static_cast<int64_t>(batch.values[static_cast<size_t>(pair)]) - 1;
  }

  static int64_t chosen_tokens(const Batch& batch) {
    int64_t count = 0;
    for (int64_t pair = 0; pair < batch.size(); ++pair) {
      const auto begin = batch.labels.begin() + 2 * pair * batch.length;
      count += std::count_if(begin, begin + batch.length,
                             [](int64_t label) { return label != kIgnoredLabel; });
    }
    return count;
  }

  // As TRL: rewards are the mean log probabilities of a token, times beta.
  [[nodiscard]] std::vector<Tensor> measures_of(const BatchScores& scores,
                                                const Tensor& odds) const {
    const Tensor means = scores.answers.log_probs / scores.answers.tokens;
    std::vector<Tensor> sums = pair_measures(options_.beta * means, means);
    sums.push_back(-scores.chosen.sum().detach());
    sums.push_back(at::log_sigmoid(odds).sum().detach());
    sums.push_back(odds.sum().detach());
    return sums;
  }

  OrpoOptions options_;
};

class MeasureMetrics final : public Metrics {
 public:
  MeasureMetrics(const TaskKeys& keys, std::vector<MeasureDifference> differences)
      : names_(keys.metric_names.begin(), keys.metric_names.end()),
        differences_(std::move(differences)) {
    for (const MeasureDifference& one : differences_) std::erase(names_, one.name);
    means_.resize(names_.size());
  }

  void add(const Batch& /*batch*/, const Outputs& outputs) override {
    for (size_t i = 0; i < means_.size(); ++i) {
      const Outputs::TermMean& one = outputs.measures[i];
      means_[i].mean += one.mean * static_cast<double>(one.targets);  // a sum until compute()
      means_[i].targets += one.targets;
    }
  }

  [[nodiscard]] std::vector<std::pair<std::string, double>> compute() const override {
    MeasureMeans metrics;
    for (size_t i = 0; i < means_.size(); ++i) {
      metrics.emplace_back(names_[i], means_[i].mean / static_cast<double>(means_[i].targets));
    }
    add_differences(differences_, metrics);
    return metrics;
  }

 private:
  std::vector<std::string> names_;  // of measures
  std::vector<MeasureDifference> differences_;
  std::vector<Outputs::TermMean> means_;
};

TaskDescriptor descriptor_of(const TaskKeys& keys,
                             std::unique_ptr<TaskSetup> (*make_setup)(const SetupContext&)) {
  return {.keys = keys,
          .rows = RowTask::kChat,
          .head = [](const TaskArgs&) -> std::optional<Head> { return std::nullopt; },
          .make_setup = make_setup,
          .pipeline = text_generation_pipeline(),
          .learns_words = true,
          .learns_next_words = true,
          .compares_sequences = true,
          .pads = false,
          .logs_tokens = true,
          .sample = "pair"};
}

}  // namespace

std::unique_ptr<Task> make_dpo_task(Model& model, c10::Device device, const DpoOptions& options) {
  return std::make_unique<Dpo>(model, device, options);
}

std::unique_ptr<Task> make_orpo_task(Model& model, c10::Device device, const OrpoOptions& options) {
  return std::make_unique<Orpo>(model, device, options);
}

std::unique_ptr<Metrics> make_measure_metrics(const TaskKeys& keys,
                                              std::vector<MeasureDifference> differences) {
  return std::make_unique<MeasureMetrics>(keys, std::move(differences));
}

const TaskDescriptor& dpo_descriptor() {
  static const TaskDescriptor descriptor = descriptor_of(dpo_keys(), make_dpo_setup);
  return descriptor;
}

const TaskDescriptor& kto_descriptor() {
  static const TaskDescriptor descriptor = [] {
    TaskDescriptor own = descriptor_of(kto_keys(), make_kto_setup);
    own.sample = "answer";
    return own;
  }();
  return descriptor;
}

const TaskDescriptor& orpo_descriptor() {
  static const TaskDescriptor descriptor = descriptor_of(orpo_keys(), make_orpo_setup);
  return descriptor;
}

}  // namespace finetune
