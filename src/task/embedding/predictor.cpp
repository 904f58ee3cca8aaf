// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/task/nearest_texts.h"
#include "task/embedding/embedding.h"
#include "task/predict/head_runner.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;
using Vector = std::vector<float>;

double cosine(const Vector& x, const Vector& y) {
  double product = 0.0, of_x = 0.0, of_y = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    product += static_cast<double>(x[i]) * y[i];
    of_x += static_cast<double>(x[i]) * x[i];
    of_y += static_cast<double>(y[i]) * y[i];
  }
  return product / std::sqrt(std::max(of_x * of_y, 1e-24));
}

// Makes vectors of texts.
class Vectors {
 public:
  Vectors(const std::string& folder, const PredictOptions& options)
      : runner_(Head::kEmbedding, "feature-extraction", folder, options.use_cpu),
        batch_size_(options.batch_size) {
    const EmbeddingConfig& own = runner_.config().embedding;
    if (!own.refusal.empty()) throw Error(ErrorKind::kData, own.refusal);
  }

  [[nodiscard]] std::vector<Vector> of(const std::vector<Query>& queries) {
    std::vector<ModelText> rows;
    for (const Query& query : queries) rows.push_back(encode(query.text, query.where));
    std::vector<Vector> vectors;
    runner_.run(rows, batch_size_, [&](size_t /*row*/, const Tensor& vector) {
      const Tensor own = vector.contiguous();
      vectors.emplace_back(own.const_data_ptr<float>(), own.const_data_ptr<float>() + own.numel());
    });
    return vectors;
  }

 private:
  [[nodiscard]] ModelText encode(const std::string& text, const std::string& where) {
    TextEncoder& encoder = runner_.encoder();
    const std::vector<int32_t> ids = encoder.ids(text, where);
    const auto longest = runner_.config().embedding.max_seq_length;
    if (!longest) return encoder.tokenizer().combine(encoder.cut(ids, where), std::nullopt);
    // The length of the training, without a warning, as sentence-transformers.
    const int64_t special = encoder.tokenizer().num_special_tokens_to_add(false);
    const int64_t room = std::min(*longest, runner_.config().max_length()) - special;
    const size_t kept = std::min(ids.size(), static_cast<size_t>(std::max<int64_t>(1, room)));
    const bool from_end = encoder.tokenizer().sides().truncate_left;
    return encoder.tokenizer().combine(
        from_end ? std::span(ids).last(kept) : std::span(ids).first(kept), std::nullopt);
  }

  HeadRunner runner_;
  int64_t batch_size_;
};

class Embedder final : public Predictor {
 public:
  Embedder(const std::string& folder, const PredictOptions& options) : vectors_(folder, options) {
    std::vector<Query> others;
    for (const std::string& text : options.compare) {
      others.push_back({.where = "--compare " + std::to_string(others.size() + 1), .text = text});
    }
    if (!others.empty()) others_ = vectors_.of(others);
  }

  std::vector<Json> answer(const std::vector<Query>& queries) override {
    std::vector<Json> answers;
    for (const Vector& vector : vectors_.of(queries)) {
      if (others_.empty()) {
        answers.push_back({{"embedding", vector}});
        continue;
      }
      Json similarities = Json::array();
      for (const Vector& other : others_) similarities.push_back(cosine(vector, other));
      answers.push_back({{"similarity", std::move(similarities)}});
    }
    return answers;
  }

 private:
  Vectors vectors_;
  std::vector<Vector> others_;
};

class Search final : public NearestTexts {
 public:
  Search(const std::string& folder, const PredictOptions& options)
      : vectors_(folder, options), most_(options.answers_of(SIZE_MAX, 10)) {
    for (const std::string& text : options.queries) {
      queries_.push_back({.text = text, .vector = {}, .found = {}});
    }
    std::vector<Query> texts;
    for (const auto& query : queries_) {
      texts.push_back({.where = "--query " + std::to_string(texts.size() + 1), .text = query.text});
    }
    const std::vector<Vector> made = vectors_.of(texts);
    for (size_t i = 0; i < made.size(); ++i) queries_[i].vector = made[i];
  }

  void add(const std::vector<Query>& documents) override {
    const std::vector<Vector> made = vectors_.of(documents);
    for (size_t i = 0; i < made.size(); ++i) {
      for (auto& query : queries_) {
        query.found.push_back(
            {.number = documents_, .score = cosine(query.vector, made[i]), .text = ""});
        query.found.back().text = documents[i].text;
        if (query.found.size() >= 2 * most_ + 256) keep_best(query.found);
      }
      ++documents_;
    }
  }

  [[nodiscard]] std::vector<Json> results() override {
    std::vector<Json> answers;
    for (auto& query : queries_) {
      keep_best(query.found);
      Json list = Json::array();
      for (const Found& found : query.found) {
        list.push_back({{"corpus_id", found.number}, {"score", found.score}, {"text", found.text}});
      }
      answers.push_back({{"query", query.text}, {"nearest", std::move(list)}});
    }
    return answers;
  }

 private:
  struct Found {
    int64_t number;
    double score;
    std::string text;
  };
  struct Asked {
    std::string text;
    Vector vector;
    std::vector<Found> found;
  };

  void keep_best(std::vector<Found>& found) const {
    std::ranges::stable_sort(found, std::greater(), &Found::score);
    found.resize(std::min(found.size(), most_));
  }

  Vectors vectors_;
  size_t most_;
  std::vector<Asked> queries_;
  int64_t documents_ = 0;
};

}  // namespace

std::unique_ptr<Predictor> make_embedder(const std::string& folder, const PredictOptions& options) {
  return std::make_unique<Embedder>(folder, options);
}

std::unique_ptr<NearestTexts> make_nearest_texts(const std::string& folder,
                                                 const PredictOptions& options) {
  return std::make_unique<Search>(folder, options);
}

}  // namespace finetune
