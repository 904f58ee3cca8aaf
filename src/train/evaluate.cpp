// SPDX-License-Identifier: MIT
#include "train/evaluate.h"

#include <chrono>
#include <cmath>
#include <cstdio>

#include "finetune/base/interrupt.h"
#include "finetune/train/metrics_log.h"

namespace finetune {

std::optional<nlohmann::ordered_json> evaluate(Task& task, const EvaluationLoader& loader,
                                               int64_t samples, ProgressDisplay& progress) {
  const auto start = std::chrono::steady_clock::now();
  double loss_by_rows = 0.0;
  int64_t rows = 0;
  int64_t targets = 0;
  int64_t correct = 0;
  progress.begin("evaluate", loader.batches());
  for (int64_t i = 0; i < loader.batches(); ++i) {
    if (interrupt::is_requested()) {
      progress.end();
      return std::nullopt;
    }
    const Batch batch = loader.get(i);
    if (batch.targets > 0) {
      const Evaluation result = task.evaluate(batch);
      loss_by_rows +=
          result.loss_sum / static_cast<double>(result.targets) * static_cast<double>(batch.rows);
      rows += batch.rows;
      targets += result.targets;
      correct += result.correct;
    }
    progress.update(i + 1);
  }
  progress.end();
  const std::chrono::duration<double> runtime = std::chrono::steady_clock::now() - start;
  nlohmann::ordered_json metrics;
  metrics["eval_loss"] = rows > 0 ? loss_by_rows / static_cast<double>(rows) : std::nan("");
  metrics["eval_accuracy"] =
      targets > 0 ? static_cast<double>(correct) / static_cast<double>(targets) : 0.0;
  metrics.update(speed_metrics("eval", runtime.count(),
                               {.samples = samples, .steps = loader.batches(), .tokens = {}}));
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
