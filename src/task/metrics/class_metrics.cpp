// SPDX-License-Identifier: MIT

#include "task/metrics/class_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "finetune/base/error.h"
#include "finetune/base/nearest.h"
#include "task/metrics/class_counts.h"
#include "task/metrics/rank_metrics.h"

namespace finetune {
namespace {

using Names = std::vector<std::string>;

// Returns the mean; NaN if there are no values.
double mean(double sum, int64_t count) {
  return count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(count);
}

// The metrics reported under a metric_name; the first choice is the default.
struct Choice {
  std::string metric_name;
  Names metrics;
};

std::vector<Choice> choices(ProblemType problem) {
  switch (problem) {
    case ProblemType::kSingleLabel:
      return {{"", {"accuracy", "f1", "matthews_correlation"}},
              {"accuracy", {"accuracy"}},
              {"f1", {"f1"}},
              {"precision", {"precision"}},
              {"recall", {"recall"}},
              {"roc_auc", {"roc_auc"}},
              {"matthews_correlation", {"matthews_correlation"}},
              {"cola", {"matthews_correlation"}},
              {"mnli", {"accuracy"}},
              {"mrpc", {"accuracy", "f1", "combined_score"}},
              {"qnli", {"accuracy"}},
              {"qqp", {"accuracy", "f1", "combined_score"}},
              {"rte", {"accuracy"}},
              {"sst2", {"accuracy"}},
              {"wnli", {"accuracy"}}};
    case ProblemType::kMultiLabel:
      return {{"", {"f1", "accuracy"}},     {"f1", {"f1"}},         {"accuracy", {"accuracy"}},
              {"precision", {"precision"}}, {"recall", {"recall"}}, {"roc_auc", {"roc_auc"}}};
    case ProblemType::kRegression:
      break;
  }
  return {{"", {"mse", "pearson", "spearmanr", "combined_score"}},
          {"mse", {"mse"}},
          {"pearson", {"pearson"}},
          {"spearmanr", {"spearmanr"}},
          {"combined_score", {"combined_score"}},
          {"stsb", {"pearson", "spearmanr", "combined_score"}}};
}

Names metrics_named(ProblemType problem, const std::string& metric_name) {
  Names known;
  std::string list;
  for (const Choice& choice : choices(problem)) {
    if (choice.metric_name == metric_name) return choice.metrics;
    known.push_back(choice.metric_name);
    if (!choice.metric_name.empty()) list += (list.empty() ? "" : ", ") + choice.metric_name;
  }
  const char* kind = problem == ProblemType::kSingleLabel  ? "one label for each sample"
                     : problem == ProblemType::kMultiLabel ? "several labels for each sample"
                                                           : "numbers";
  throw Error(ErrorKind::kConfig, "metric_name: '" + metric_name + "' is not a metric for " + kind +
                                      did_you_mean(metric_name, known) + "; choose from " + list +
                                      ", or leave it out");
}

// Returns the metrics of all names in order, each once.
Names metrics_of(ProblemType problem, const Names& metric_names) {
  if (metric_names.empty()) return metrics_named(problem, "");
  Names metrics;
  for (const std::string& name : metric_names) {
    for (const std::string& metric : metrics_named(problem, name)) {
      if (std::ranges::find(metrics, metric) == metrics.end()) metrics.push_back(metric);
    }
  }
  return metrics;
}

bool has_roc_auc(const Names& names) { return std::ranges::find(names, "roc_auc") != names.end(); }

// Logits on the host, [samples, outputs] row-major.
struct HostLogits {
  explicit HostLogits(const Tensor& logits)
      : tensor(logits.to(at::kCPU, at::kFloat).contiguous()),
        values(tensor.const_data_ptr<float>(), static_cast<size_t>(tensor.numel())) {}
  Tensor tensor;
  std::span<const float> values;
};

class ClassMetrics final : public Metrics {
 public:
  explicit ClassMetrics(Names names) : names_(std::move(names)) {}

  void add(const Batch& batch, const Outputs& outputs) override {
    if (outputs.targets == 0) return;
    const Tensor best = outputs.logits.argmax(-1).to(at::kCPU);  // the first of equal ones
    const std::span<const int64_t> predicted(best.const_data_ptr<int64_t>(),
                                             static_cast<size_t>(best.numel()));
    for (size_t i = 0; i < batch.classes.size(); ++i) {
      if (batch.classes[i] == kIgnoredLabel) continue;
      counts_.add(outputs.logits.size(1), predicted[i], batch.classes[i]);
    }
    if (has_roc_auc(names_)) add_scores(batch, HostLogits(outputs.logits));
  }

  [[nodiscard]] std::vector<std::pair<std::string, double>> compute() const override {
    std::vector<std::pair<std::string, double>> result;
    for (const std::string& name : names_) result.emplace_back(name, value(name));
    return result;
  }

 private:
  [[nodiscard]] double value(const std::string& name) const {
    if (name == "accuracy") return counts_.accuracy();
    if (name == "f1") return counts_.average(&Hits::f1);
    if (name == "precision") return counts_.average(&Hits::precision);
    if (name == "recall") return counts_.average(&Hits::recall);
    if (name == "combined_score") return (value("accuracy") + value("f1")) / 2;
    if (name == "roc_auc") return scores_.macro(columns_);
    return counts_.matthews_correlation();
  }

  // Adds scores for roc_auc. Two classes: the difference of the logits, which has the order of the
  // probability. More classes: the probability of each class against all others.
  void add_scores(const Batch& batch, const HostLogits& logits) {
    const size_t classes = logits.values.size() / batch.classes.size();
    columns_ = classes == 2 ? 1 : static_cast<int64_t>(classes);
    for (size_t i = 0; i < batch.classes.size(); ++i) {
      if (batch.classes[i] == kIgnoredLabel) continue;
      const std::span<const float> row = logits.values.subspan(i * classes, classes);
      if (classes == 2) {
        scores_.add(static_cast<double>(row[1]) - static_cast<double>(row[0]),
                    batch.classes[i] == 1);
        continue;
      }
      const auto largest = static_cast<double>(*std::ranges::max_element(row));
      double sum = 0.0;
      for (const float logit : row) sum += std::exp(static_cast<double>(logit) - largest);
      for (size_t c = 0; c < classes; ++c) {
        scores_.add(std::exp(static_cast<double>(row[c]) - largest) / sum,
                    batch.classes[i] == static_cast<int64_t>(c));
      }
    }
  }

  Names names_;
  ClassCounts counts_;
  RocAucColumns scores_;  // only with roc_auc
  int64_t columns_ = 0;
};

class LabelMetrics final : public Metrics {
 public:
  explicit LabelMetrics(Names names) : names_(std::move(names)) {}

  void add(const Batch& batch, const Outputs& outputs) override {
    if (outputs.targets == 0) return;
    const HostLogits logits(outputs.logits);
    const auto labels = static_cast<size_t>(outputs.logits.size(1));
    labels_ = outputs.logits.size(1);
    const bool scores = has_roc_auc(names_);
    for (size_t first = 0; first < batch.values.size(); first += labels) {
      bool all = true;
      for (size_t i = first; i < first + labels; ++i) {
        const bool predicted = logits.values[i] > 0;
        const bool there = batch.values[i] > 0.5F;
        if (scores) scores_.add(static_cast<double>(logits.values[i]), there);
        hits_.hits += predicted && there ? 1 : 0;
        hits_.predicted += predicted ? 1 : 0;
        hits_.there += there ? 1 : 0;
        all = all && predicted == there;
      }
      exact_ += all ? 1 : 0;
      ++samples_;
    }
  }

  [[nodiscard]] std::vector<std::pair<std::string, double>> compute() const override {
    std::vector<std::pair<std::string, double>> result;
    for (const std::string& name : names_) result.emplace_back(name, value(name));
    return result;
  }

 private:
  [[nodiscard]] double value(const std::string& name) const {
    const double accuracy = mean(static_cast<double>(exact_), samples_);
    if (name == "accuracy" || samples_ == 0) return accuracy;
    if (name == "precision") return hits_.precision();
    if (name == "recall") return hits_.recall();
    if (name == "roc_auc") return scores_.macro(labels_);
    return hits_.f1();
  }

  Names names_;
  Hits hits_;
  int64_t exact_ = 0;  // samples with all labels correct
  int64_t samples_ = 0;
  RocAucColumns scores_;  // only with roc_auc
  int64_t labels_ = 0;
};

class NumberMetrics final : public Metrics {
 public:
  NumberMetrics(Names names, bool is_default) : names_(std::move(names)), is_default_(is_default) {}

  void add(const Batch& batch, const Outputs& outputs) override {
    if (outputs.targets == 0) return;
    const HostLogits logits(outputs.logits);
    outputs_ = outputs.logits.size(1);
    for (size_t i = 0; i < batch.values.size(); ++i) {
      const double error =
          static_cast<double>(logits.values[i]) - static_cast<double>(batch.values[i]);
      squares_ += error * error;
      ++values_;
    }
    if (outputs_ != 1 || names_ == Names{"mse"}) return;
    predicted_.insert(predicted_.end(), logits.values.begin(), logits.values.end());
    there_.insert(there_.end(), batch.values.begin(), batch.values.end());
  }

  [[nodiscard]] std::vector<std::pair<std::string, double>> compute() const override {
    std::vector<std::pair<std::string, double>> result;
    for (const std::string& name : names_) {
      // Correlations are defined for one output only.
      if (is_default_ && outputs_ > 1 && name != "mse") continue;
      result.emplace_back(name, value(name));
    }
    return result;
  }

 private:
  [[nodiscard]] double value(const std::string& name) const {
    if (name == "mse") return mean(squares_, values_);
    if (name == "pearson") return pearson(predicted_, there_);
    if (name == "spearmanr") return spearman(predicted_, there_);
    return (value("pearson") + value("spearmanr")) / 2;
  }

  Names names_;
  bool is_default_;
  int64_t outputs_ = 1;
  double squares_ = 0.0;
  int64_t values_ = 0;
  std::vector<float> predicted_, there_;  // rank correlation needs all values
};

}  // namespace

std::unique_ptr<Metrics> make_sequence_classification_metrics(ProblemType problem,
                                                              const Names& metric_names) {
  Names names = metrics_of(problem, metric_names);
  switch (problem) {
    case ProblemType::kSingleLabel:
      return std::make_unique<ClassMetrics>(std::move(names));
    case ProblemType::kMultiLabel:
      return std::make_unique<LabelMetrics>(std::move(names));
    case ProblemType::kRegression:
      break;
  }
  return std::make_unique<NumberMetrics>(std::move(names), metric_names.empty());
}

std::unique_ptr<Metrics> make_class_metrics(Names names) {
  return std::make_unique<ClassMetrics>(std::move(names));
}

}  // namespace finetune
