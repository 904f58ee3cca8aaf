// SPDX-License-Identifier: MIT
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "finetune/report/figure_text.h"
#include "finetune/task/prediction_files.h"
#include "task/embedding/embedding.h"
#include "task/embedding/search.h"
#include "task/metrics/rank_metrics.h"
#include "task/predict/worst_samples.h"

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
  using Tokens = std::vector<int64_t>;

  // Returns the number of the text with these tokens.
  size_t add(const Tokens& tokens, std::span<const float> vector) {
    const auto [found, is_new] = numbers_.emplace(tokens, numbers_.size());
    if (is_new) {
      values_.insert(values_.end(), vector.begin(), vector.end());
      tokens_.push_back(&found->first);
    }
    return found->second;
  }
  [[nodiscard]] int64_t size() const { return std::ssize(tokens_); }
  [[nodiscard]] const Tokens& tokens(int64_t number) const {
    return *tokens_.at(static_cast<size_t>(number));
  }
  [[nodiscard]] Tensor vectors() const {  // [size, D], shares the memory
    return at::from_blob(const_cast<float*>(values_.data()),
                         {size(), std::ssize(values_) / std::max<int64_t>(1, size())}, at::kFloat);
  }

 private:
  std::map<Tokens, size_t> numbers_;
  std::vector<const Tokens*> tokens_;  // in numbers_, whose nodes stay where they are
  std::vector<float> values_;
};

// Means over queries, as InformationRetrievalEvaluator, and what was found wrongly.
class RetrievalMeans {
 public:
  // `ranked`: documents, the nearest first. `relevant`: in ascending order, without those that the
  // corpus lacks, which `relevant_count` counts, too.
  void add(int64_t query, std::span<const Neighbour> ranked, std::span<const int64_t> relevant,
           int64_t relevant_count) {
    std::vector<uint8_t> hits;
    for (const Neighbour& found : ranked) {
      hits.push_back(std::ranges::binary_search(relevant, found.document) ? 1 : 0);
    }
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
    if (ranked.empty() || relevant.empty() || hits[0] == 1) return;
    const auto first = std::ranges::find(hits, 1);
    const bool is_found = first != hits.end();
    wrong_.push_back({.query = query,
                      .rank = is_found ? first - hits.begin() + 1 : std::ssize(hits) + 1,
                      .is_found = is_found,
                      .right = relevant.front(),
                      .nearest = ranked.front().document,
                      .score = ranked.front().score});
  }

  void add_to(Named& metrics) const {
    const auto add = [&](const std::string& name, int64_t rank, double sum) {
      metrics.emplace_back("cosine_" + name + "@" + std::to_string(rank), mean(sum));
    };
    for (size_t k = 0; k < kRanks.size(); ++k) add("accuracy", kRanks[k], accuracy_[k]);
    for (size_t k = 0; k < kRanks.size(); ++k) add("precision", kRanks[k], precision_[k]);
    for (size_t k = 0; k < kRanks.size(); ++k) add("recall", kRanks[k], recall_[k]);
    add("ndcg", kNdcgRank, ndcg_);
    add("mrr", kNdcgRank, mrr_);
    add("map", kMapRank, map_);
  }
  // Of vectors that are cut to `dims`, as an evaluator with truncate_dim that is named after it.
  void add_cut_to(int64_t dims, Named& metrics) const {
    metrics.emplace_back(
        "dim_" + std::to_string(dims) + "_cosine_ndcg@" + std::to_string(kNdcgRank), mean(ndcg_));
  }

  struct Wrong {
    int64_t query;
    int64_t rank;   // of the first document that answers it, or after all that were looked at
    bool is_found;  // it is among those
    int64_t right, nearest;  // documents
    float score;             // of the nearest
  };
  [[nodiscard]] const std::vector<Wrong>& wrong() const { return wrong_; }

 private:
  [[nodiscard]] double mean(double sum) const { return sum / static_cast<double>(queries_); }

  std::array<double, kRanks.size()> accuracy_ = {}, precision_ = {}, recall_ = {};
  double ndcg_ = 0.0, mrr_ = 0.0, map_ = 0.0;
  int64_t queries_ = 0;
  std::vector<Wrong> wrong_;
};

// Ranks texts for queries: what an evaluation's metrics and its files are made of.
class Ranking {
 public:
  virtual ~Ranking() = default;
  virtual void add(const Batch& batch, const Outputs& outputs) = 0;
  [[nodiscard]] virtual Named metrics() const = 0;
  [[nodiscard]] virtual std::vector<RetrievalMeans::Wrong> wrong() const = 0;
  [[nodiscard]] virtual int64_t size() const = 0;  // queries
  [[nodiscard]] virtual int64_t sample_of(int64_t query) const = 0;
  using Tokens = std::vector<int64_t>;
  [[nodiscard]] virtual Tokens query(int64_t number) const = 0;
  [[nodiscard]] virtual Tokens document(int64_t number) const = 0;
  // Numbers of cosines by twentieths from -1 to 1: of positives, and of negatives or else of
  // another sample's positive. Empty: not known.
  using Counts = std::vector<int64_t>;
  [[nodiscard]] virtual std::pair<Counts, Counts> similarities() const { return {}; }
};

Tensor cut(const Tensor& vectors, int64_t dims) {
  return dims >= vectors.size(1) ? vectors : unit_rows(vectors.narrow(1, 0, dims));
}

Texts::Tokens tokens_of(const Batch& batch, int64_t row) {
  Texts::Tokens tokens;
  const auto begin = static_cast<size_t>(row * batch.length);
  for (size_t cell = begin; cell < begin + static_cast<size_t>(batch.length); ++cell) {
    if (batch.attention_mask[cell] != 0) tokens.push_back(batch.input_ids[cell]);
  }
  return tokens;
}

// Ranks the texts of all samples for each first text.
class SampleRanking final : public Ranking {
 public:
  SampleRanking(int64_t texts, std::vector<int64_t> dims) : texts_(texts), dims_(std::move(dims)) {}

  void add(const Batch& batch, const Outputs& outputs) override {
    const Tensor vectors = unit_rows(outputs.logits);
    const auto size = static_cast<size_t>(vectors.size(1));
    const auto vector_of = [&](int64_t row) {
      return std::span(vectors.const_data_ptr<float>() + static_cast<size_t>(row) * size, size);
    };
    whole_.reset();
    for (int64_t sample = 0; sample < batch.size(); ++sample) {
      const int64_t first = sample * batch.choices;
      const size_t query = queries_.add(tokens_of(batch, first), vector_of(first));
      if (query == relevant_.size()) {
        relevant_.emplace_back();
        sample_of_.push_back(samples_);
      }
      for (int64_t text = 1; text < batch.choices; ++text) {
        const size_t document =
            corpus_.add(tokens_of(batch, first + text), vector_of(first + text));
        if (text == 1) {
          relevant_[query].insert(static_cast<int64_t>(document));
          pairs_.emplace_back(query, document);
        }
        if (text != 2) continue;
        const double negative = dot(vector_of(first), vector_of(first + 2));
        count(negative, negatives_);
        right_ += dot(vector_of(first), vector_of(first + 1)) > negative ? 1 : 0;
      }
      ++samples_;
    }
  }

  [[nodiscard]] Named metrics() const override {
    Named metrics;
    if (texts_ > 2) {
      metrics.emplace_back("cosine_accuracy",
                           static_cast<double>(right_) / static_cast<double>(samples_));
    }
    whole().add_to(metrics);
    for (const int64_t dims : dims_) means(dims).add_cut_to(dims, metrics);
    return metrics;
  }

  [[nodiscard]] std::vector<RetrievalMeans::Wrong> wrong() const override {
    return whole().wrong();
  }
  [[nodiscard]] int64_t size() const override { return queries_.size(); }
  [[nodiscard]] int64_t sample_of(int64_t query) const override {
    return sample_of_[static_cast<size_t>(query)];
  }
  [[nodiscard]] Tokens query(int64_t number) const override { return queries_.tokens(number); }
  [[nodiscard]] Tokens document(int64_t number) const override { return corpus_.tokens(number); }

  [[nodiscard]] std::pair<Counts, Counts> similarities() const override {
    if (pairs_.empty()) return {};
    const Tensor queries = queries_.vectors();
    const Tensor documents = corpus_.vectors();
    const auto cosine_of = [&](size_t query, size_t document) {
      const Tensor product = queries.select(0, static_cast<int64_t>(query))
                                 .dot(documents.select(0, static_cast<int64_t>(document)));
      return product.item<double>();
    };
    Counts positives = Counts(kBins);
    Counts others = negatives_;
    for (size_t i = 0; i < pairs_.size(); ++i) {
      const auto& [query, document] = pairs_[i];
      count(cosine_of(query, document), positives);
      const size_t other = pairs_[(i + pairs_.size() / 2) % pairs_.size()].second;
      const bool is_right = relevant_[query].contains(static_cast<int64_t>(other));
      if (texts_ == 2 && !is_right) count(cosine_of(query, other), others);
    }
    return {positives, others};
  }

 private:
  static constexpr size_t kBins = 40;

  static void count(double cosine, Counts& counts) {
    if (std::isnan(cosine)) return;
    const double bin = std::floor((cosine + 1) / 2 * static_cast<double>(kBins));
    ++counts[static_cast<size_t>(std::clamp(bin, 0.0, static_cast<double>(kBins - 1)))];
  }

  // The metrics and the files are made of the same.
  const RetrievalMeans& whole() const {
    if (!whole_) whole_ = means(INT64_MAX);
    return *whole_;
  }
  [[nodiscard]] RetrievalMeans means(int64_t dims) const {
    RetrievalMeans means;
    if (queries_.size() == 0) return means;
    visit_nearest(cut(queries_.vectors(), dims), cut(corpus_.vectors(), dims), kMapRank,
                  [&](int64_t query, std::span<const Neighbour> nearest) {
                    const std::set<int64_t>& own = relevant_[static_cast<size_t>(query)];
                    means.add(query, nearest, std::vector(own.begin(), own.end()), std::ssize(own));
                  });
    return means;
  }

  int64_t texts_;
  std::vector<int64_t> dims_;
  Texts queries_, corpus_;
  std::vector<std::set<int64_t>> relevant_;       // by query
  std::vector<int64_t> sample_of_;                // by query: its first sample
  std::vector<std::pair<size_t, size_t>> pairs_;  // query and positive of each sample
  Counts negatives_ = Counts(kBins);
  mutable std::optional<RetrievalMeans> whole_;
  int64_t samples_ = 0, right_ = 0;
};

// Ranks a corpus, whose samples follow those of the queries, for each of these.
class CorpusRanking final : public Ranking {
 public:
  CorpusRanking(std::shared_ptr<const RetrievalTask> task, std::shared_ptr<const Dataset> data,
                std::vector<int64_t> dims)
      : task_(std::move(task)), data_(std::move(data)), dims_(std::move(dims)) {
    dims_.insert(dims_.begin(), INT64_MAX);
  }

  void add(const Batch& batch, const Outputs& outputs) override {
    const Tensor vectors = unit_rows(outputs.logits);
    const int64_t left = std::clamp<int64_t>(queries() - seen_, 0, batch.size());
    if (left > 0) queries_.push_back(vectors.narrow(0, 0, left));
    if (left > 0 && seen_ + left == queries()) {
      const Tensor all = at::cat(queries_);
      queries_.clear();
      for (const int64_t dims : dims_) {
        nearest_.push_back(std::make_unique<NearestDocuments>(cut(all, dims), kMapRank));
      }
    }
    if (left < batch.size()) {
      const Tensor documents = vectors.narrow(0, left, batch.size() - left);
      for (size_t i = 0; i < dims_.size(); ++i) nearest_[i]->add(cut(documents, dims_[i]));
    }
    seen_ += batch.size();
  }

  [[nodiscard]] Named metrics() const override {
    Named metrics;
    means(0).add_to(metrics);
    for (size_t i = 1; i < dims_.size(); ++i) means(i).add_cut_to(dims_[i], metrics);
    return metrics;
  }

  [[nodiscard]] std::vector<RetrievalMeans::Wrong> wrong() const override {
    return means(0).wrong();
  }
  [[nodiscard]] int64_t size() const override { return queries(); }
  [[nodiscard]] int64_t sample_of(int64_t query) const override { return query; }
  [[nodiscard]] Tokens query(int64_t number) const override { return tokens(number); }
  [[nodiscard]] Tokens document(int64_t number) const override {
    return tokens(queries() + number);
  }

 private:
  [[nodiscard]] int64_t queries() const { return std::ssize(task_->relevant); }
  [[nodiscard]] Tokens tokens(int64_t sample) const {
    const auto ids = data_->get(sample).input_ids;
    Tokens tokens;
    for (size_t i = 0; i < ids.size(); ++i) tokens.push_back(ids[i]);
    return tokens;
  }
  [[nodiscard]] RetrievalMeans means(size_t cut_number) const {
    RetrievalMeans means;
    if (nearest_.empty()) return means;
    nearest_[cut_number]->visit([&](int64_t query, std::span<const Neighbour> nearest) {
      const auto number = static_cast<size_t>(query);
      means.add(query, nearest, task_->relevant[number], task_->relevant_count[number]);
    });
    return means;
  }

  std::shared_ptr<const RetrievalTask> task_;
  std::shared_ptr<const Dataset> data_;
  std::vector<int64_t> dims_;  // all of them, and those to which vectors are cut
  int64_t seen_ = 0;           // samples
  std::vector<Tensor> queries_;
  std::vector<std::unique_ptr<NearestDocuments>> nearest_;  // by dims_
};

class RankingMetrics final : public Metrics {
 public:
  explicit RankingMetrics(std::shared_ptr<Ranking> ranking) : ranking_(std::move(ranking)) {}
  void add(const Batch& batch, const Outputs& outputs) override { ranking_->add(batch, outputs); }
  [[nodiscard]] Named compute() const override { return ranking_->metrics(); }

 private:
  std::shared_ptr<Ranking> ranking_;
};

// The queries whose nearest document is wrong, for the report.
class RankingFiles final : public PredictionFiles {
 public:
  RankingFiles(std::shared_ptr<const Ranking> ranking, const Tokenizer* tokenizer)
      : ranking_(std::move(ranking)), tokenizer_(tokenizer) {}

  void add(const Batch& /*batch*/, const Outputs& /*outputs*/) override {}  // the metrics' part

  void write(FileSystem& files, const std::string& output_dir) const override {
    WorstSamples worst("rank");
    for (const RetrievalMeans::Wrong& wrong : ranking_->wrong()) {
      worst.add(ranking_->sample_of(wrong.query),
                wrong.is_found ? static_cast<double>(wrong.rank) : std::nan(""),
                {.first = static_cast<double>(wrong.rank), .second = wrong.score},
                [&]() -> WorstSamples::Json {
                  return {{"text", text_of(ranking_->query(wrong.query))},
                          {"label", text_of(ranking_->document(wrong.right))},
                          {"predicted", text_of(ranking_->document(wrong.nearest))},
                          {"predicted_score", rounded_figure(wrong.score)}};
                });
    }
    WorstSamples::Json more = {{"samples", ranking_->size()}};
    const auto [positives, others] = ranking_->similarities();
    if (!positives.empty()) {
      more["similarities"] = {{"positives", positives}, {"others", others}};
    }
    worst.write(files, output_dir, "evaluation", more);
  }

 private:
  [[nodiscard]] std::string text_of(const std::vector<int64_t>& tokens) const {
    return tokenizer_->decode(std::vector<int32_t>(tokens.begin(), tokens.end()), true);
  }

  std::shared_ptr<const Ranking> ranking_;
  const Tokenizer* tokenizer_;
};

class SimilarityMetrics final : public Metrics {
 public:
  explicit SimilarityMetrics(std::vector<int64_t> dims) : dims_(std::move(dims)) {
    dims_.insert(dims_.begin(), INT64_MAX);
    cosines_.resize(dims_.size());
  }

  void add(const Batch& batch, const Outputs& outputs) override {
    for (const float value : batch.values) scores_.push_back(value);
    for (size_t i = 0; i < dims_.size(); ++i) {
      const Tensor vectors = cut(unit_rows(outputs.logits), dims_[i]).contiguous();
      const auto size = static_cast<size_t>(vectors.size(1));
      const auto vector_of = [&](int64_t row) {
        return std::span(vectors.const_data_ptr<float>() + static_cast<size_t>(row) * size, size);
      };
      for (int64_t row = 0; row < batch.rows; row += batch.choices) {
        cosines_[i].push_back(static_cast<float>(dot(vector_of(row), vector_of(row + 1))));
      }
    }
  }

  [[nodiscard]] Named compute() const override {
    Named metrics = {{"pearson_cosine", pearson(cosines_[0], scores_)},
                     {"spearman_cosine", spearman(cosines_[0], scores_)}};
    for (size_t i = 1; i < dims_.size(); ++i) {
      metrics.emplace_back("dim_" + std::to_string(dims_[i]) + "_spearman_cosine",
                           spearman(cosines_[i], scores_));
    }
    return metrics;
  }

 private:
  std::vector<int64_t> dims_;                // all of them, and those to which vectors are cut
  std::vector<std::vector<float>> cosines_;  // by dims_
  std::vector<float> scores_;
};

}  // namespace

TaskSetup::Results make_embedding_results(const EvaluatedTexts& texts) {
  if (texts.has_score) return {std::make_unique<SimilarityMetrics>(texts.dims), nullptr};
  std::shared_ptr<Ranking> ranking;
  if (texts.retrieval) {
    ranking = std::make_shared<CorpusRanking>(texts.retrieval, texts.data, texts.dims);
  } else {
    ranking = std::make_shared<SampleRanking>(texts.texts, texts.dims);
  }
  return {std::make_unique<RankingMetrics>(ranking),
          std::make_unique<RankingFiles>(ranking, texts.tokenizer)};
}

}  // namespace finetune
