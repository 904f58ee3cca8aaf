// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include "task/metrics/rank_metrics.h"
#include "task/reranker/reranker.h"

namespace finetune {
namespace {

using Named = std::vector<std::pair<std::string, double>>;

constexpr size_t kRank = 10;

class Ranking final : public Metrics {
 public:
  void add(const Batch& batch, const Outputs& outputs) override {
    const Tensor scores = outputs.logits.to(at::kCPU, at::kFloat).contiguous();
    const auto* values = scores.const_data_ptr<float>();
    const auto documents = static_cast<size_t>(batch.choices);
    for (size_t sample = 0; sample < static_cast<size_t>(batch.size()); ++sample) {
      std::vector<std::pair<float, bool>> ranked;  // score, relevant
      for (size_t i = 0; i < documents; ++i) {
        const size_t at = sample * documents + i;
        ranked.emplace_back(values[at], batch.values.empty() ? i == 0 : batch.values[at] > 0);
      }
      std::ranges::stable_sort(ranked,
                               [](const auto& a, const auto& b) { return a.first > b.first; });
      add_sample(ranked);
    }
  }

  [[nodiscard]] Named compute() const override {
    const auto count = static_cast<double>(samples_);
    return {{"map", map_ / count}, {"mrr@10", mrr_ / count}, {"ndcg@10", ndcg_ / count}};
  }

 private:
  void add_sample(const std::vector<std::pair<float, bool>>& ranked) {
    ++samples_;
    double hits = 0.0, precisions = 0.0, dcg = 0.0, ideal = 0.0, first = 0.0;
    for (size_t i = 0; i < ranked.size(); ++i) {
      if (!ranked[i].second) continue;
      precisions += ++hits / static_cast<double>(i + 1);
      if (i >= kRank) continue;
      if (first == 0.0) first = 1.0 / static_cast<double>(i + 1);
      dcg += 1.0 / std::log2(static_cast<double>(i + 2));
    }
    if (hits == 0.0) return;  // no document is relevant
    for (size_t i = 0; i < std::min(kRank, static_cast<size_t>(hits)); ++i) {
      ideal += 1.0 / std::log2(static_cast<double>(i + 2));
    }
    map_ += precisions / hits;
    mrr_ += first;
    ndcg_ += dcg / ideal;
  }

  int64_t samples_ = 0;
  double map_ = 0.0, mrr_ = 0.0, ndcg_ = 0.0;
};

class Correlation final : public Metrics {
 public:
  void add(const Batch& batch, const Outputs& outputs) override {
    const Tensor scores = outputs.logits.to(at::kCPU, at::kFloat).sigmoid().contiguous();
    const auto* values = scores.const_data_ptr<float>();
    scores_.insert(scores_.end(), values, values + scores.numel());
    labels_.insert(labels_.end(), batch.values.begin(), batch.values.end());
  }
  [[nodiscard]] Named compute() const override {
    return {{"pearson", pearson(scores_, labels_)}, {"spearman", spearman(scores_, labels_)}};
  }

 private:
  std::vector<float> scores_, labels_;
};

}  // namespace

std::unique_ptr<Metrics> make_reranker_metrics(bool has_lists) {
  if (has_lists) return std::make_unique<Ranking>();
  return std::make_unique<Correlation>();
}

}  // namespace finetune
