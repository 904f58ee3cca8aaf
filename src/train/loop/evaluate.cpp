// SPDX-License-Identifier: MIT
#include "train/loop/evaluate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <span>

#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/config/batch_split.h"
#include "finetune/kernels/one_threaded.h"
#include "finetune/report/figure_text.h"
#include "finetune/state/metrics_log.h"
#include "finetune/task/tasks.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/out_of_memory.h"
#include "train/loop/outputs_exchange.h"
#include "train/save/agreement.h"

namespace finetune {

namespace {

// Mean loss over samples; a batch may be added in parts.
class MeanLoss {
 public:
  void add(const Batch& part, const Outputs& outputs) {
    samples_ += part.size();
    if (outputs.targets == 0) return;
    ++parts_;
    loss_ = outputs.loss;
    std::vector<Outputs::TermMean> terms = outputs.terms;
    if (terms.empty()) terms.push_back({.mean = outputs.loss, .targets = outputs.targets});
    terms_.resize(terms.size());
    for (size_t term = 0; term < terms.size(); ++term) {
      terms_[term].sum += terms[term].mean * static_cast<double>(terms[term].targets);
      terms_[term].targets += terms[term].targets;
    }
  }
  void end_batch() {
    if (parts_ > 0) {
      double mean = 0.0;
      for (const Term& term : terms_) {
        if (term.targets > 0) mean += term.sum / static_cast<double>(term.targets);
      }
      if (parts_ == 1) mean = loss_;
      by_samples_ += mean * static_cast<double>(samples_);
      with_loss_ += samples_;
    }
    samples_ = parts_ = 0;
    terms_.clear();
  }
  [[nodiscard]] bool is_there() const { return with_loss_ > 0; }
  [[nodiscard]] double mean() const {
    return is_there() ? by_samples_ / static_cast<double>(with_loss_) : std::nan("");
  }

 private:
  struct Term {
    double sum = 0.0;
    int64_t targets = 0;
  };

  double by_samples_ = 0.0;
  int64_t with_loss_ = 0;
  // Sums of the current batch.
  double loss_ = 0.0;
  std::vector<Term> terms_;
  int64_t samples_ = 0;
  int64_t parts_ = 0;
};

// Returns how many batches each process computes per round, equal in all processes; 1 if all
// threads compute each batch.
int64_t agreed_batches_at_once(const Parts& parts) {
  if (parts.batches_at_once == 0) return 1;
  return least(*parts.world, parts.batches_at_once);
}

std::vector<Outputs> compute_outputs(const Parts& parts, std::span<const Batch> batches) {
  std::vector<Outputs> outputs(batches.size());
  const auto compute = [&](int64_t i) {
    const auto position = static_cast<size_t>(i);
    outputs[position] = parts.task->evaluate(batches[position]);
  };
  if (parts.batches_at_once > 0) {
    compute_side_by_side(static_cast<int64_t>(batches.size()), compute);
  } else {
    compute(0);
  }
  return outputs;
}

// With the names of a split's metrics: "eval_loss".
nlohmann::ordered_json named_metrics(const std::string& prefix, const MeanLoss& loss,
                                     const Metrics& own, const TrainingArgs& args, bool has_loss) {
  nlohmann::ordered_json metrics;
  if (has_loss) metrics[prefix + "_loss"] = loss.mean();
  const TaskDescriptor& task = task_of(args.task);
  if (task.learns_next_words && !task.compares_sequences) {
    metrics[prefix + "_perplexity"] = std::exp(loss.mean());
  }
  if (args.prediction_loss_only) return metrics;
  for (const auto& [name, value] : own.compute()) metrics[prefix + "_" + name] = value;
  return metrics;
}

std::optional<EvaluationResult> evaluate_in_parts(const Parts& parts, Split split,
                                                  const TrainingArgs& args,
                                                  ProgressDisplay& progress,
                                                  int64_t rows_at_a_time) {
  const bool predicts = split == Split::kTest;
  const std::string prefix = predicts ? "predict" : "eval";
  const auto& data = predicts ? parts.test_data : parts.validation_data;
  const EvaluationLoader batches(data, parts.collator, args.per_device_eval_batch_size,
                                 args.dataloader_drop_last && !predicts);
  EvaluationLoader loader(data, parts.collator, rows_at_a_time);
  const int64_t parts_of_batch = args.per_device_eval_batch_size / rows_at_a_time;
  const int64_t count = std::min(loader.batches(), batches.batches() * parts_of_batch);
  const auto start = std::chrono::steady_clock::now();
  MeanLoss loss;
  TaskSetup::Results results = parts.setup->make_results(split);
  progress.begin(predicts ? "predict" : "evaluate", count);
  SessionClock* const clock = parts.session ? &parts.session->clock : nullptr;
  const SessionClock::Unit unit = SessionClock::Unit::kEvaluationBatch;
  World& world = *parts.world;
  const int64_t at_once = agreed_batches_at_once(parts);
  std::vector<Batch> own(static_cast<size_t>(at_once));
  Batch other;
  OutputsExchange exchange(world, task_of(args.task).learns_words);
  ParameterExchange* const parameters = parts.model ? parts.model->store().exchange() : nullptr;
  // In a round each process computes `at_once` neighbouring batches, and all processes count all
  // batches.
  for (int64_t first = 0; first < count; first += world.size() * at_once) {
    if (clock != nullptr) clock->begin(unit, interrupt::seconds_since_boot());
    const int64_t mine = first + world.rank() * at_once;
    const bool stops = interrupt::is_requested();
    const int64_t computed = stops ? 0 : std::clamp<int64_t>(count - mine, 0, at_once);
    for (int64_t i = 0; i < computed; ++i) loader.get(mine + i, own[static_cast<size_t>(i)]);
    const std::optional<std::vector<Outputs>> round = exchange.share(
        computed > 0,
        [&] {
          if (parameters != nullptr) parameters->begin_pass(ParameterExchange::Pass::kForward);
          return compute_outputs(parts, std::span(own).first(static_cast<size_t>(computed)));
        },
        stops, parameters);
    if (!round) {
      progress.end();
      return std::nullopt;
    }
    for (int64_t i = first; i < std::min(count, first + world.size() * at_once); ++i) {
      const bool is_mine = i >= mine && i < mine + computed;
      if (!is_mine) loader.get(i, other);
      const Batch& batch = is_mine ? own[static_cast<size_t>(i - mine)] : other;
      const Outputs& outputs = (*round)[static_cast<size_t>(i - first)];
      loss.add(batch, outputs);
      if ((i + 1) % parts_of_batch == 0 || i + 1 == count) loss.end_batch();
      results.metrics->add(batch, outputs);
      if (results.files) results.files->add(batch, outputs);
      progress.update(i + 1);
    }
  }
  if (clock != nullptr) clock->end(unit, interrupt::seconds_since_boot());
  progress.end();
  const std::chrono::duration<double> runtime = std::chrono::steady_clock::now() - start;
  EvaluationResult result{.metrics = {}, .files = std::move(results.files)};
  nlohmann::ordered_json& metrics = result.metrics;
  if (!predicts || loss.is_there()) {
    metrics = named_metrics(prefix, loss, *results.metrics, args, parts.setup->has_loss(split));
  }
  metrics.update(
      speed_metrics(prefix, runtime.count(),
                    {.samples = loader.samples(), .steps = batches.batches(), .tokens = {}}));
  return result;
}

}  // namespace

std::optional<EvaluationResult> evaluate(Parts& parts, Split split, const TrainingArgs& args,
                                         ProgressDisplay& progress, int64_t& rows_at_a_time) {
  while (true) {
    std::exception_ptr lack_of_memory;
    try {
      return evaluate_in_parts(parts, split, args, progress, rows_at_a_time);
    } catch (...) {
      lack_of_memory = std::current_exception();
      if (!is_lack_of_memory(lack_of_memory)) throw;
    }
    progress.end();
    if (const int64_t at_once = agreed_batches_at_once(parts); at_once > 1) {
      parts.batches_at_once = at_once / 2;
      release_unused_memory(parts.device);
      log::warning("out of memory in the evaluation: it is done again with " +
                   std::to_string(at_once / 2) + " batches at a time, the results are the same");
      continue;
    }
    if (rows_at_a_time == 1) std::rethrow_exception(lack_of_memory);
    lack_of_memory = nullptr;
    const auto batch = BatchSplit::of(args.per_device_eval_batch_size, rows_at_a_time, /*ranks=*/1);
    rows_at_a_time = batch->next_smaller()->rows;
    release_unused_memory(parts.device);
    log::warning("out of memory in the evaluation: it is done again with " +
                 std::to_string(rows_at_a_time) + " samples at a time, the results are the same");
  }
}

std::string describe_metrics(const nlohmann::ordered_json& metrics) {
  std::string text;
  for (const auto& [key, value] : metrics.items()) {
    // Speed and sizes, which a log that was read again has in alphabetical order.
    if (key.ends_with("_runtime") || key.ends_with("_per_second") || key.ends_with("_samples")) {
      continue;
    }
    // trainer_state.json stores an undefined metric (NaN) as null.
    const double figure = value.is_number() ? value.get<double>() : std::nan("");
    text += (text.empty() ? "" : ", ") + key + " " + figure_text(figure);
  }
  return text;
}

}  // namespace finetune
