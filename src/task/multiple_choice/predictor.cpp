// SPDX-License-Identifier: MIT
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "finetune/base/error.h"
#include "task/multiple_choice/multiple_choice.h"
#include "task/predict/head_runner.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

class MultipleChoicePredictor final : public Predictor {
 public:
  MultipleChoicePredictor(const std::string& folder, const PredictOptions& options)
      : runner_(Head::kMultipleChoice, "multiple-choice", folder, options), options_(options) {}

  std::vector<Json> answer(const std::vector<Query>& queries) override {
    std::vector<ModelText> rows;
    for (const Query& query : queries) encode(query, rows);
    std::vector<Json> answers;
    std::vector<float> logits;
    runner_.run(rows, options_.batch_size, [&](size_t /*row*/, const Tensor& logit) {
      logits.push_back(logit.item<float>());
      const Query& query = queries[answers.size()];
      if (logits.size() < query.parts.size()) return;
      const Tensor scores = at::softmax(at::tensor(logits), -1);
      answers.push_back(options_.probabilities == Probabilities::kUsual
                            ? best_choice(query, scores)
                            : ranked_choices(query, scores));
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

  [[nodiscard]] Json ranked_choices(const Query& query, const Tensor& scores) const {
    std::vector<std::pair<float, size_t>> ranked;
    for (size_t i = 0; i < query.parts.size(); ++i) {
      ranked.emplace_back(scores[static_cast<int64_t>(i)].item<float>(), i);
    }
    std::ranges::stable_sort(ranked, std::greater(), &std::pair<float, size_t>::first);
    ranked.resize(options_.answers_of(ranked.size(), 1));
    Json list = Json::array();
    for (const auto& [score, choice] : ranked) {
      list.push_back({{"label", choice}, {"choice", query.parts[choice]}, {"score", score}});
    }
    return list;
  }

  HeadRunner runner_;
  PredictOptions options_;
};

}  // namespace

std::unique_ptr<Predictor> make_multiple_choice(const std::string& folder,
                                                const PredictOptions& options) {
  return std::make_unique<MultipleChoicePredictor>(folder, options);
}

}  // namespace finetune
