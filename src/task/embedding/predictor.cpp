// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/data/data_record.h"
#include "finetune/task/nearest_texts.h"
#include "task/embedding/embedding.h"
#include "task/embedding/text_vectors.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;
// The cosine of two vectors [D].
double cosine_of(const Tensor& x, const Tensor& y) {
  double product = 0.0, of_x = 0.0, of_y = 0.0;
  const auto* xs = x.const_data_ptr<float>();
  const auto* ys = y.const_data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    product += static_cast<double>(xs[i]) * ys[i];
    of_x += static_cast<double>(xs[i]) * xs[i];
    of_y += static_cast<double>(ys[i]) * ys[i];
  }
  return product / std::sqrt(std::max(of_x * of_y, 1e-24));
}

std::vector<float> values_of(const Tensor& vector) {
  return {vector.const_data_ptr<float>(), vector.const_data_ptr<float>() + vector.numel()};
}

// The prompt of this name; empty for a name that the model does not have, if `or_none`.
std::string prompt_named(const TextVectors& model, const std::string& name, bool or_none) {
  const TextVectors::Prompts& prompts = model.prompts();
  const auto found = std::ranges::find(prompts, name, [](const auto& p) { return p.first; });
  if (found != prompts.end()) return found->second;
  if (or_none) return "";
  std::vector<std::string> names;
  for (const auto& [known, text] : prompts) names.push_back(known);
  throw Error(ErrorKind::kUsage, "--prompt_name " + name + ": the model has " +
                                     (names.empty() ? "no prompts" : "the prompts " + join(names)));
}

class Embedder final : public Predictor {
 public:
  Embedder(const std::string& folder, const PredictOptions& options) : vectors_(folder, options) {
    if (options.prompt_name) prompt_ = prompt_named(vectors_, *options.prompt_name, false);
    std::vector<Query> others;
    for (const std::string& text : options.compare) {
      others.push_back({.where = "--compare " + std::to_string(others.size() + 1), .text = text});
    }
    if (!others.empty()) others_ = vectors_.of(others, prompt_);
  }

  std::vector<Json> answer(const std::vector<Query>& queries) override {
    std::vector<Json> answers;
    for (const Tensor& vector : vectors_.of(queries, prompt_).unbind()) {
      if (!others_.defined()) {
        answers.push_back({{"embedding", values_of(vector)}});
        continue;
      }
      Json similarities = Json::array();
      for (const Tensor& other : others_.unbind()) similarities.push_back(cosine_of(vector, other));
      answers.push_back({{"similarity", std::move(similarities)}});
    }
    return answers;
  }

 private:
  TextVectors vectors_;
  std::string prompt_;
  Tensor others_;
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
    const std::string before = find_prompts(folder, options);
    const Tensor made = vectors_.of(texts, before);
    for (size_t i = 0; i < texts.size(); ++i) {
      queries_[i].vector = made.select(0, static_cast<int64_t>(i));
    }
  }

  void add(const std::vector<Query>& documents) override {
    const Tensor made = vectors_.of(documents, document_prompt_);
    for (size_t i = 0; i < documents.size(); ++i) {
      const Tensor vector = made.select(0, static_cast<int64_t>(i));
      for (auto& query : queries_) {
        query.found.push_back(
            {.number = documents_, .score = cosine_of(query.vector, vector), .text = ""});
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
    Tensor vector;
    std::vector<Found> found;
  };

  // Returns the prompt of queries: that of --prompt_name, or of the first column of the training.
  // Documents have that of the second column.
  std::string find_prompts(const std::string& folder, const PredictOptions& options) {
    const std::optional<DataRecord> record = read_data_record(folder);
    std::vector<std::string> names = {"query", "document"};
    if (record && record->columns.text_columns.size() > 1) names = record->columns.text_columns;
    const std::string before =
        prompt_named(vectors_, options.prompt_name.value_or(names[0]), !options.prompt_name);
    document_prompt_ = prompt_named(vectors_, names[1], true);
    if (!before.empty() || !document_prompt_.empty()) {
      log::info("prompts: '" + before + "' of queries, '" + document_prompt_ + "' of texts");
    }
    return before;
  }

  void keep_best(std::vector<Found>& found) const {
    std::ranges::stable_sort(found, std::greater(), &Found::score);
    found.resize(std::min(found.size(), most_));
  }

  TextVectors vectors_;
  std::string document_prompt_;
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
