// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include "task/metrics/rank_metrics.h"
#include "task/reranker/reranker.h"

namespace finetune {
namespace {

using Named = std::vector<std::pair<std::string, double>>;

constexpr int64_t kRank = 10;

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
        if (!batch.values.empty() && std::isnan(batch.values[at])) continue;  // a shorter list
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
    std::vector<uint8_t> hits;
    for (const auto& document : ranked) hits.push_back(document.second ? 1 : 0);
    const RankingScores scores = score_ranking(hits, std::ranges::count(hits, 1), kRank);
    map_ += scores.average_precision;
    mrr_ += scores.reciprocal_rank;
    ndcg_ += scores.ndcg;
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
