// SPDX-License-Identifier: MIT
#include "finetune/task/hard_negatives.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <unordered_map>

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "task/embedding/search.h"
#include "task/embedding/text_vectors.h"

namespace finetune {
namespace {

constexpr size_t kTextsAtOnce = 4096;  // are sorted by length

// Different texts in the order of their first occurrence.
class DistinctTexts {
 public:
  size_t add(const std::string& text, const std::string& where) {
    const auto [found, is_new] = numbers_.emplace(text, texts_.size());
    if (is_new) texts_.push_back({.where = where, .text = text});
    return found->second;
  }
  [[nodiscard]] const std::string& operator[](size_t number) const { return texts_[number].text; }
  [[nodiscard]] const std::vector<Query>& all() const { return texts_; }
  [[nodiscard]] size_t size() const { return texts_.size(); }

 private:
  std::unordered_map<std::string, size_t> numbers_;
  std::vector<Query> texts_;
};

// The queries with their positives, and all positives as the corpus.
struct Corpus {
  DistinctTexts queries, documents;
  std::vector<std::vector<int64_t>> positives;  // by query
  int64_t most_positives = 0;                   // rows of a query

  explicit Corpus(const std::vector<MiningPair>& pairs) {
    for (const MiningPair& pair : pairs) documents.add(pair.positive, pair.where);
    std::vector<int64_t> rows;
    for (const MiningPair& pair : pairs) {
      const size_t query = queries.add(pair.query, pair.where);
      if (query == positives.size()) {
        positives.emplace_back();
        rows.push_back(0);
      }
      most_positives = std::max(most_positives, ++rows[query]);
      const auto document = static_cast<int64_t>(documents.add(pair.positive, pair.where));
      std::vector<int64_t>& own = positives[query];
      if (std::ranges::find(own, document) == own.end()) own.push_back(document);
    }
  }
};

Tensor vectors_of(TextVectors& model, const std::vector<Query>& texts, const std::string& prompt,
                  const std::function<void(int64_t)>& progress) {
  std::vector<Tensor> parts;
  for (size_t first = 0; first < texts.size(); first += kTextsAtOnce) {
    const size_t end = std::min(texts.size(), first + kTextsAtOnce);
    const std::vector<Query> some(texts.begin() + static_cast<std::ptrdiff_t>(first),
                                  texts.begin() + static_cast<std::ptrdiff_t>(end));
    parts.push_back(unit_rows(model.of(some, prompt)));
    progress(static_cast<int64_t>(end));
  }
  return at::cat(parts);
}

// The nearest documents that are looked at, as mine_hard_negatives() decides it.
int64_t range_of(const HardNegativeOptions& options, int64_t most_positives) {
  if (options.range_max) return *options.range_max;
  const bool leaves_out = options.absolute_margin || options.relative_margin || options.max_score;
  return options.range_min + options.num_negatives * (leaves_out ? 10 : 1) + most_positives;
}

// Whether a document is no negative of a query, of whose positives `positive` is the lowest score.
// In float32 and in this order, as there.
bool is_left_out(const HardNegativeOptions& options, float score, float positive) {
  const auto is_above = [&](const std::optional<double>& limit) {
    return limit && score > static_cast<float>(*limit);
  };
  if (is_above(options.max_score)) return true;
  if (options.min_score && score < static_cast<float>(*options.min_score)) return true;
  if (options.absolute_margin && score + static_cast<float>(*options.absolute_margin) > positive) {
    return true;
  }
  const auto share = static_cast<float>(options.relative_margin.value_or(0));
  return options.relative_margin && score > positive - std::abs(positive) * share;
}

}  // namespace

void check_hard_negatives(const HardNegativeOptions& options) {
  for (const auto& limit :
       {options.max_score, options.min_score, options.absolute_margin, options.relative_margin}) {
    if (limit && !std::isfinite(*limit)) {
      throw Error(ErrorKind::kUsage, "--hard_negatives: scores and margins are numbers");
    }
  }
  if (options.range_min < 0) throw Error(ErrorKind::kUsage, "--range_min must not be negative");
  if (!options.range_max) return;
  if (*options.range_max - options.range_min >= options.num_negatives) return;
  throw Error(ErrorKind::kUsage,
              format_text("--hard_negatives {}: --range_min {} and --range_max {} leave {} "
                          "candidates; raise --range_max",
                          options.num_negatives, options.range_min, *options.range_max,
                          std::max<int64_t>(0, *options.range_max - options.range_min)));
}

Mining mine_hard_negatives(const MiningModel& from, const std::vector<MiningPair>& pairs,
                           const HardNegativeOptions& options,
                           const std::function<void(int64_t done, int64_t total)>& progress) {
  check_hard_negatives(options);
  const Corpus corpus(pairs);
  TextVectors model(from.folder, {.use_cpu = from.use_cpu, .batch_size = from.batch_size});
  const auto total = static_cast<int64_t>(corpus.documents.size() + corpus.queries.size());
  const Tensor documents = vectors_of(model, corpus.documents.all(), from.document_prompt,
                                      [&](int64_t done) { progress(done, total); });
  const auto before = static_cast<int64_t>(corpus.documents.size());
  const Tensor queries = vectors_of(model, corpus.queries.all(), from.query_prompt,
                                    [&](int64_t done) { progress(before + done, total); });

  const int64_t range = range_of(options, corpus.most_positives);
  const int64_t looked_at = std::min(range + corpus.most_positives, before);
  Mining mining;
  visit_nearest(queries, documents, looked_at, [&](int64_t q, std::span<const Neighbour> nearest) {
    const auto number = static_cast<size_t>(q);
    const std::vector<int64_t>& positives = corpus.positives[number];
    float lowest = INFINITY;
    for (const int64_t positive : positives) {
      const Tensor product = queries.select(0, q).dot(documents.select(0, positive));
      lowest = std::min(lowest, product.item<float>());
    }
    std::vector<std::string> negatives;
    int64_t rank = 0;
    for (const Neighbour& found : nearest) {
      const bool is_positive = std::ranges::find(positives, found.document) != positives.end();
      if (is_positive || is_left_out(options, found.score, lowest)) continue;
      if (rank++ < options.range_min) continue;
      if (rank > range || std::ssize(negatives) == options.num_negatives) break;
      negatives.push_back(corpus.documents[static_cast<size_t>(found.document)]);
    }
    if (std::ssize(negatives) < options.num_negatives) {
      mining.without += std::ssize(positives);
      return;
    }
    for (const int64_t positive : positives) {
      mining.rows.push_back({.query = corpus.queries[number],
                             .positive = corpus.documents[static_cast<size_t>(positive)],
                             .negatives = negatives});
    }
  });
  return mining;
}

}  // namespace finetune
