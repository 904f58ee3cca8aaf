// SPDX-License-Identifier: MIT
#include "train/evaluate.h"

#include <chrono>
#include <cmath>
#include <cstdio>

#include "finetune/base/interrupt.h"
#include "finetune/train/metrics_log.h"

namespace finetune {

std::optional<nlohmann::ordered_json> evaluate(Task& task, Metrics& results,
                                               const EvaluationLoader& loader,
                                               ProgressDisplay& progress) {
  const auto start = std::chrono::steady_clock::now();
  double loss_by_samples = 0.0;
  int64_t with_loss = 0;
  progress.begin("evaluate", loader.batches());
  for (int64_t i = 0; i < loader.batches(); ++i) {
    if (interrupt::is_requested()) {
      progress.end();
      return std::nullopt;
    }
    const Batch batch = loader.get(i);
    const Outputs outputs = task.evaluate(batch);
    if (outputs.targets > 0) {
      loss_by_samples += outputs.loss * static_cast<double>(batch.size());
      with_loss += batch.size();
    }
    results.add(batch, outputs);
    progress.update(i + 1);
  }
  progress.end();
  const std::chrono::duration<double> runtime = std::chrono::steady_clock::now() - start;
  nlohmann::ordered_json metrics;
  metrics["eval_loss"] =
      with_loss > 0 ? loss_by_samples / static_cast<double>(with_loss) : std::nan("");
  for (const auto& [name, value] : results.compute()) metrics["eval_" + name] = value;
  metrics.update(
      speed_metrics("eval", runtime.count(),
                    {.samples = loader.samples(), .steps = loader.batches(), .tokens = {}}));
  return metrics;
}

std::string describe_metrics(const nlohmann::ordered_json& metrics) {
  std::string text;
  for (const char* key : {"eval_loss", "eval_accuracy"}) {
    if (!metrics.contains(key)) continue;
    char value[32];
    std::snprintf(value, sizeof(value), "%.4g", metrics[key].get<double>());
    text += (text.empty() ? "" : ", ") + std::string(key) + " " + value;
  }
  return text;
}

}  // namespace finetune
