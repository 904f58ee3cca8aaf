// SPDX-License-Identifier: MIT
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "finetune/base/error.h"
#include "task/embedding/embedding.h"
#include "task/embedding/search.h"
#include "task/metrics/rank_metrics.h"

namespace finetune {
namespace {

using Named = std::vector<std::pair<std::string, double>>;

constexpr std::array<int64_t, 4> kRanks = {1, 3, 5, 10};
constexpr int64_t kNdcgRank = 10;
constexpr int64_t kMapRank = 100;

double dot(std::span<const float> x, std::span<const float> y) {
  double sum = 0.0;
  for (size_t i = 0; i < x.size(); ++i) sum += static_cast<double>(x[i]) * y[i];
  return sum;
}

// Distinct texts with their vectors of length 1.
class Texts {
 public:
  // Returns the number of the text with these tokens.
  size_t add(const std::vector<int64_t>& tokens, std::span<const float> vector) {
    const auto [found, is_new] = numbers_.emplace(tokens, numbers_.size());
    if (is_new) values_.insert(values_.end(), vector.begin(), vector.end());
    return found->second;
  }
  [[nodiscard]] size_t size() const { return numbers_.size(); }
  [[nodiscard]] Tensor vectors() const {  // [size, D], shares the memory
    const auto count = static_cast<int64_t>(size());
    return at::from_blob(const_cast<float*>(values_.data()),
                         {count, static_cast<int64_t>(values_.size()) / count}, at::kFloat);
  }

 private:
  std::map<std::vector<int64_t>, size_t> numbers_;
  std::vector<float> values_;
};

// Ranks the corpus for each query, as InformationRetrievalEvaluator.
class Retrieval {
 public:
  void add_query(const std::vector<int64_t>& tokens, std::span<const float> vector) {
    query_ = queries_.add(tokens, vector);
    if (query_ == relevant_.size()) relevant_.emplace_back();
  }
  // Of the last query.
  void add_document(const std::vector<int64_t>& tokens, std::span<const float> vector,
                    bool is_relevant) {
    const size_t document = corpus_.add(tokens, vector);
    if (is_relevant) relevant_[query_].insert(static_cast<int64_t>(document));
  }

  void compute(Named& metrics) const {
    std::array<double, kRanks.size()> accuracy = {}, precision = {}, recall = {};
    double ndcg = 0.0, mrr = 0.0, map = 0.0;
    const auto count = static_cast<double>(queries_.size());
    visit_rankings([&](size_t query, const std::vector<int64_t>& ranked) {
      const std::set<int64_t>& relevant = relevant_[query];
      std::vector<uint8_t> hits;
      for (const int64_t document : ranked) hits.push_back(relevant.contains(document) ? 1 : 0);
      for (size_t k = 0; k < kRanks.size(); ++k) {
        const auto end = hits.begin() + std::min<int64_t>(kRanks[k], std::ssize(hits));
        const auto found = static_cast<double>(std::count(hits.begin(), end, 1));
        accuracy[k] += found > 0.0 ? 1.0 : 0.0;
        precision[k] += found / static_cast<double>(kRanks[k]);
        recall[k] += found / static_cast<double>(relevant.size());
      }
      const RankingScores scores = score_ranking(hits, std::ssize(relevant), kNdcgRank);
      ndcg += scores.ndcg;
      mrr += scores.reciprocal_rank;
      map += scores.average_precision;
    });
    const auto add = [&](const std::string& name, int64_t rank, double sum) {
      metrics.emplace_back("cosine_" + name + "@" + std::to_string(rank), sum / count);
    };
    for (size_t k = 0; k < kRanks.size(); ++k) add("accuracy", kRanks[k], accuracy[k]);
    for (size_t k = 0; k < kRanks.size(); ++k) add("precision", kRanks[k], precision[k]);
    for (size_t k = 0; k < kRanks.size(); ++k) add("recall", kRanks[k], recall[k]);
    add("ndcg", kNdcgRank, ndcg);
    add("mrr", kNdcgRank, mrr);
    add("map", kMapRank, map);
  }

 private:
  template <typename Visit>
  void visit_rankings(const Visit& visit) const {
    if (queries_.size() == 0) return;
    const int64_t most = std::min<int64_t>(kMapRank, static_cast<int64_t>(corpus_.size()));
    std::vector<int64_t> ranked;
    visit_nearest(queries_.vectors(), corpus_.vectors(), most,
                  [&](int64_t query, std::span<const Neighbour> nearest) {
                    ranked.clear();
                    for (const Neighbour& found : nearest) ranked.push_back(found.document);
                    visit(static_cast<size_t>(query), ranked);
                  });
  }

  Texts queries_, corpus_;
  std::vector<std::set<int64_t>> relevant_;  // by query
  size_t query_ = 0;
};

class EmbeddingMetrics final : public Metrics {
 public:
  EmbeddingMetrics(int64_t texts, bool has_score) : texts_(texts), has_score_(has_score) {}

  void add(const Batch& batch, const Outputs& outputs) override {
    const Tensor vectors = unit_rows(outputs.logits);
    const auto size = static_cast<size_t>(vectors.size(1));
    const auto* values = vectors.const_data_ptr<float>();
    const auto vector_of = [&](int64_t row) {
      return std::span(values + static_cast<size_t>(row) * size, size);
    };
    for (int64_t sample = 0; sample < batch.size(); ++sample) {
      const int64_t first = sample * batch.choices;
      const auto anchor = vector_of(first);
      if (has_score_) {
        scores_.push_back(batch.values.at(static_cast<size_t>(sample)));
        cosines_.push_back(static_cast<float>(dot(anchor, vector_of(first + 1))));
        continue;
      }
      retrieval_.add_query(tokens_of(batch, first), anchor);
      for (int64_t text = 1; text < batch.choices; ++text) {
        retrieval_.add_document(tokens_of(batch, first + text), vector_of(first + text), text == 1);
      }
      ++samples_;
      if (batch.choices < 3) continue;
      const double positive = dot(anchor, vector_of(first + 1));
      right_ += positive > dot(anchor, vector_of(first + 2)) ? 1 : 0;
    }
  }

  [[nodiscard]] Named compute() const override {
    Named metrics;
    if (has_score_) {
      metrics.emplace_back("pearson_cosine", pearson(cosines_, scores_));
      metrics.emplace_back("spearman_cosine", spearman(cosines_, scores_));
      return metrics;
    }
    if (texts_ > 2) {
      metrics.emplace_back("cosine_accuracy",
                           static_cast<double>(right_) / static_cast<double>(samples_));
    }
    retrieval_.compute(metrics);
    return metrics;
  }

 private:
  static std::vector<int64_t> tokens_of(const Batch& batch, int64_t row) {
    std::vector<int64_t> tokens;
    const auto begin = static_cast<size_t>(row * batch.length);
    for (size_t cell = begin; cell < begin + static_cast<size_t>(batch.length); ++cell) {
      if (batch.attention_mask[cell] != 0) tokens.push_back(batch.input_ids[cell]);
    }
    return tokens;
  }

  int64_t texts_;
  bool has_score_;
  Retrieval retrieval_;
  std::vector<float> cosines_, scores_;
  int64_t samples_ = 0, right_ = 0;
};

}  // namespace

std::unique_ptr<Metrics> make_embedding_metrics(int64_t texts, bool has_score) {
  return std::make_unique<EmbeddingMetrics>(texts, has_score);
}

}  // namespace finetune
