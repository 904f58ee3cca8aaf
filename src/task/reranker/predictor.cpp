// SPDX-License-Identifier: MIT
#include <cmath>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "task/predict/head_runner.h"
#include "task/reranker/reranker.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// Whether CrossEncoder returns logits: its activation is in config.json.
bool returns_logits(const ModelConfig& config) {
  const Json fields = parse_json(config.other_fields, "config.json");
  const auto own = fields.find("sentence_transformers");
  if (own == fields.end() || !own->is_object()) return false;
  return own->value("activation_fn", std::string()).ends_with("Identity");
}

class Reranker final : public Predictor {
 public:
  Reranker(const std::string& folder, const PredictOptions& options)
      : runner_(Head::kSequenceClassification, "text-ranking", folder, options),
        batch_size_(options.batch_size),
        returns_logits_(returns_logits(runner_.config())) {
    if (runner_.config().id2label.size() == 1) return;
    throw Error(ErrorKind::kData, folder + ": the model has " +
                                      std::to_string(runner_.config().id2label.size()) +
                                      " labels, and a reranker has one");
  }

  std::vector<Json> answer(const std::vector<Query>& queries) override {
    std::vector<ModelText> rows;
    for (const Query& query : queries) {
      if (!query.pair) {
        throw Error(ErrorKind::kData, query.where +
                                          ": has one text, and a reranker scores a query "
                                          "with a document; give the document with "
                                          "--text_pair");
      }
      TextEncoder& encoder = runner_.encoder();
      rows.push_back(encoder.pair(encoder.ids(query.text, query.where),
                                  encoder.ids(*query.pair, query.where), query.where));
    }
    std::vector<Json> answers;
    runner_.run(rows, batch_size_, [&](size_t /*row*/, const Tensor& logit) {
      const double score = logit.item<double>();
      answers.push_back({{"score", returns_logits_ ? score : 1.0 / (1.0 + std::exp(-score))}});
    });
    return answers;
  }

 private:
  HeadRunner runner_;
  int64_t batch_size_;
  bool returns_logits_;
};

}  // namespace

std::unique_ptr<Predictor> make_reranker(const std::string& folder, const PredictOptions& options) {
  return std::make_unique<Reranker>(folder, options);
}

}  // namespace finetune
