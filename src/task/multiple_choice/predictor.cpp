// SPDX-License-Identifier: MIT
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>

#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "task/head_runner.h"
#include "task/multiple_choice/multiple_choice.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

class MultipleChoicePredictor final : public Predictor {
 public:
  MultipleChoicePredictor(const std::string& folder, const PredictOptions& options)
      : runner_(Head::kMultipleChoice, "multiple-choice", folder, options.use_cpu),
        batch_size_(options.batch_size) {}

  std::vector<Json> answer(const std::vector<Query>& queries) override {
    std::vector<ModelText> rows;
    for (const Query& query : queries) encode(query, rows);
    std::vector<Json> answers;
    std::vector<float> logits;
    runner_.run(rows, batch_size_, [&](size_t /*row*/, const Tensor& logit) {
      logits.push_back(logit.item<float>());
      const Query& query = queries[answers.size()];
      if (logits.size() < query.parts.size()) return;
      answers.push_back(best_choice(query, at::softmax(at::tensor(logits), -1)));
      logits.clear();
    });
    return answers;
  }

 private:
  void encode(const Query& query, std::vector<ModelText>& rows) {
    if (query.parts.size() < 2) {
      throw Error(ErrorKind::kData, query.where + ": has " + std::to_string(query.parts.size()) +
                                        " choices; give at least two");
    }
    TextEncoder& encoder = runner_.encoder();
    const std::vector<int32_t> context = encoder.ids(query.text, query.where);
    for (const std::string& choice : query.parts) {
      const std::string text = query.pair ? *query.pair + " " + choice : choice;
      rows.push_back(encoder.pair(context, encoder.ids(text, query.where), query.where));
    }
  }

  static Json best_choice(const Query& query, const Tensor& scores) {
    const int64_t best = scores.argmax().item<int64_t>();
    Json list = Json::array();
    for (int64_t i = 0; i < scores.numel(); ++i) list.push_back(scores[i].item<float>());
    return {{"label", best},
            {"choice", query.parts[static_cast<size_t>(best)]},
            {"scores", std::move(list)}};
  }

  HeadRunner runner_;
  int64_t batch_size_;
};

}  // namespace

std::unique_ptr<Predictor> make_multiple_choice(const std::string& folder,
                                                const PredictOptions& options) {
  return std::make_unique<MultipleChoicePredictor>(folder, options);
}

}  // namespace finetune
