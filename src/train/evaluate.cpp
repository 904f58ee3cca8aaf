// SPDX-License-Identifier: MIT
#include "train/evaluate.h"

#include <chrono>
#include <cmath>
#include <cstdio>

#include "finetune/base/interrupt.h"
#include "finetune/train/metrics_log.h"

namespace finetune {

std::optional<EvaluationResult> evaluate(const Parts& parts, Split split, const TrainingArgs& args,
                                         ProgressDisplay& progress) {
  const bool predicts = split == Split::kTest;
  const std::string prefix = predicts ? "predict" : "eval";
  const EvaluationLoader loader(predicts ? parts.test_data : parts.validation_data, parts.collator,
                                args.per_device_eval_batch_size,
                                args.dataloader_drop_last && !predicts);
  const auto start = std::chrono::steady_clock::now();
  double loss_by_samples = 0.0;
  int64_t with_loss = 0;
  TaskSetup::Results results = parts.setup->make_results(split);
  progress.begin(predicts ? "predict" : "evaluate", loader.batches());
  for (int64_t i = 0; i < loader.batches(); ++i) {
    if (interrupt::is_requested()) {
      progress.end();
      return std::nullopt;
    }
    const Batch batch = loader.get(i);
    const Outputs outputs = parts.task->evaluate(batch);
    if (outputs.targets > 0) {
      loss_by_samples += outputs.loss * static_cast<double>(batch.size());
      with_loss += batch.size();
    }
    results.metrics->add(batch, outputs);
    if (results.files) results.files->add(batch, outputs);
    progress.update(i + 1);
  }
  progress.end();
  const std::chrono::duration<double> runtime = std::chrono::steady_clock::now() - start;
  EvaluationResult result{.metrics = {}, .files = std::move(results.files)};
  nlohmann::ordered_json& metrics = result.metrics;
  if (!predicts || with_loss > 0) {
    metrics[prefix + "_loss"] =
        with_loss > 0 ? loss_by_samples / static_cast<double>(with_loss) : std::nan("");
    if (!args.prediction_loss_only) {
      for (const auto& [name, value] : results.metrics->compute()) {
        metrics[prefix + "_" + name] = value;
      }
    }
  }
  metrics.update(
      speed_metrics(prefix, runtime.count(),
                    {.samples = loader.samples(), .steps = loader.batches(), .tokens = {}}));
  return result;
}

std::string describe_metrics(const nlohmann::ordered_json& metrics) {
  std::string text;
  for (const auto& [key, value] : metrics.items()) {
    if (key.ends_with("_runtime")) break;  // what follows is speed
    char number[32];
    // A metric that is not defined, NaN, comes back from trainer_state.json as null.
    const double figure = value.is_number() ? value.get<double>() : std::nan("");
    std::snprintf(number, sizeof(number), "%.4g", figure);
    text += (text.empty() ? "" : ", ") + key + " " + number;
  }
  return text;
}

}  // namespace finetune
