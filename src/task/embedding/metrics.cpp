// SPDX-License-Identifier: MIT
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <utility>

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

// Means over queries, as InformationRetrievalEvaluator.
class RetrievalMeans {
 public:
  // `ranked`: documents, the nearest first. `relevant_count`: documents that answer the query.
  template <class IsRelevant>
  void add(std::span<const Neighbour> ranked, const IsRelevant& is_relevant,
           int64_t relevant_count) {
    std::vector<uint8_t> hits;
    for (const Neighbour& found : ranked) hits.push_back(is_relevant(found.document) ? 1 : 0);
    for (size_t k = 0; k < kRanks.size(); ++k) {
      const auto end = hits.begin() + std::min<int64_t>(kRanks[k], std::ssize(hits));
      const auto found = static_cast<double>(std::count(hits.begin(), end, 1));
      accuracy_[k] += found > 0.0 ? 1.0 : 0.0;
      precision_[k] += found / static_cast<double>(kRanks[k]);
      recall_[k] += found / static_cast<double>(relevant_count);
    }
    const RankingScores scores = score_ranking(hits, relevant_count, kNdcgRank);
    ndcg_ += scores.ndcg;
    mrr_ += scores.reciprocal_rank;
    map_ += scores.average_precision;
    ++queries_;
  }

  void add_to(Named& metrics) const {
    const auto add = [&](const std::string& name, int64_t rank, double sum) {
      metrics.emplace_back("cosine_" + name + "@" + std::to_string(rank),
                           sum / static_cast<double>(queries_));
    };
    for (size_t k = 0; k < kRanks.size(); ++k) add("accuracy", kRanks[k], accuracy_[k]);
    for (size_t k = 0; k < kRanks.size(); ++k) add("precision", kRanks[k], precision_[k]);
    for (size_t k = 0; k < kRanks.size(); ++k) add("recall", kRanks[k], recall_[k]);
    add("ndcg", kNdcgRank, ndcg_);
    add("mrr", kNdcgRank, mrr_);
    add("map", kMapRank, map_);
  }

 private:
  std::array<double, kRanks.size()> accuracy_ = {}, precision_ = {}, recall_ = {};
  double ndcg_ = 0.0, mrr_ = 0.0, map_ = 0.0;
  int64_t queries_ = 0;
};

// Ranks the texts of all samples for each first text.
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
    RetrievalMeans means;
    if (queries_.size() > 0) {
      const auto add = [&](int64_t query, std::span<const Neighbour> nearest) {
        const std::set<int64_t>& own = relevant_[static_cast<size_t>(query)];
        means.add(
            nearest, [&](int64_t document) { return own.contains(document); }, std::ssize(own));
      };
      visit_nearest(queries_.vectors(), corpus_.vectors(), kMapRank, add);
    }
    means.add_to(metrics);
  }

 private:
  Texts queries_, corpus_;
  std::vector<std::set<int64_t>> relevant_;  // by query
  size_t query_ = 0;
};

// Ranks a corpus, whose samples follow those of the queries, for each of these.
class CorpusMetrics final : public Metrics {
 public:
  explicit CorpusMetrics(RetrievalTask task) : task_(std::move(task)) {}

  void add(const Batch& batch, const Outputs& outputs) override {
    const Tensor vectors = unit_rows(outputs.logits);
    const auto queries = std::ssize(task_.relevant);
    const int64_t left = std::clamp<int64_t>(queries - seen_, 0, batch.size());
    if (left > 0) {
      queries_.push_back(vectors.narrow(0, 0, left));
      if (seen_ + left == queries) {
        nearest_ = std::make_unique<NearestDocuments>(at::cat(queries_), kMapRank);
        queries_.clear();
      }
    }
    if (left < batch.size()) nearest_->add(vectors.narrow(0, left, batch.size() - left));
    seen_ += batch.size();
  }

  [[nodiscard]] Named compute() const override {
    RetrievalMeans means;
    if (nearest_) {
      nearest_->visit([&](int64_t query, std::span<const Neighbour> nearest) {
        const auto number = static_cast<size_t>(query);
        const std::vector<int64_t>& own = task_.relevant[number];
        const auto is_relevant = [&](int64_t document) {
          return std::ranges::find(own, document) != own.end();
        };
        means.add(nearest, is_relevant, task_.relevant_count[number]);
      });
    }
    Named metrics;
    means.add_to(metrics);
    return metrics;
  }

 private:
  RetrievalTask task_;
  int64_t seen_ = 0;  // samples
  std::vector<Tensor> queries_;
  std::unique_ptr<NearestDocuments> nearest_;
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

std::unique_ptr<Metrics> make_corpus_metrics(const RetrievalTask& task) {
  return std::make_unique<CorpusMetrics>(task);
}

std::unique_ptr<Metrics> make_embedding_metrics(int64_t texts, bool has_score) {
  return std::make_unique<EmbeddingMetrics>(texts, has_score);
}

}  // namespace finetune
