// SPDX-License-Identifier: MIT
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/task/tasks.h"
#include "task/metrics/calibration.h"
#include "task/predict/head_runner.h"
#include "task/sequence_classification/sequence_classification.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

enum class Function { kSigmoid, kSoftmax, kNone };

// Chooses the function as transformers' pipeline does.
Function default_function(const ModelConfig& config) {
  const std::string problem = config.problem_type.value_or("");
  if (problem == "regression") return Function::kNone;
  if (problem == "multi_label_classification" || config.id2label.size() == 1) {
    return Function::kSigmoid;
  }
  return Function::kSoftmax;
}

Function choose_function(const std::string& name, const ModelConfig& config) {
  if (name == "default") return default_function(config);
  if (name == "sigmoid") return Function::kSigmoid;
  if (name == "softmax") return Function::kSoftmax;
  if (name == "none") return Function::kNone;
  throw Error(ErrorKind::kUsage,
              "--function_to_apply takes default, sigmoid, softmax or none, not '" + name + "'");
}

class TextClassification final : public Predictor {
 public:
  TextClassification(const std::string& folder, const PredictOptions& options)
      : runner_(Head::kSequenceClassification, "text-classification", folder, options),
        function_(choose_function(options.function_to_apply, runner_.config())),
        top_k_(options.answers_of(runner_.config().id2label.size(), 1)),
        batch_size_(options.batch_size),
        temperature_(read_calibration(runner_.folder()).value_or(1.0)),
        columns_(trained_record(runner_.folder(), RowTask::kSequenceClassification).columns) {}

  std::vector<Json> answer(const std::vector<Query>& queries) override {
    std::vector<ModelText> rows;
    for (const Query& query : queries) rows.push_back(encode(query));
    std::vector<Json> answers;
    runner_.run(rows, batch_size_, [&](size_t /*row*/, const Tensor& logits) {
      answers.push_back(best_labels(scores(logits)));
    });
    return answers;
  }

 private:
  [[nodiscard]] ModelText encode(const Query& query) {
    TextEncoder& encoder = runner_.encoder();
    const std::vector<int32_t> first = encoder.ids(query.text, query.where);
    if (!query.pair && columns_.text_pair_column) {
      throw Error(ErrorKind::kConfig,
                  query.where + ": has one text, and the model was trained on pairs ('" +
                      columns_.text_column.value_or("text") + "', '" + *columns_.text_pair_column +
                      "'); give the second text with --text_pair, or rows with both columns in "
                      "--input");
    }
    if (!query.pair) {
      return encoder.tokenizer().combine(encoder.cut(first, query.where), std::nullopt);
    }
    return encoder.pair(first, encoder.ids(*query.pair, query.where), query.where);
  }

  [[nodiscard]] Tensor scores(const Tensor& logits) const {
    if (function_ == Function::kSigmoid) return at::sigmoid(logits);
    return function_ == Function::kSoftmax ? at::softmax(logits / temperature_, -1) : logits;
  }

  [[nodiscard]] Json best_labels(const Tensor& scores) const {
    std::vector<std::pair<float, size_t>> ranked;
    for (size_t i = 0; i < runner_.config().id2label.size(); ++i) {
      ranked.emplace_back(scores[static_cast<int64_t>(i)].item<float>(), i);
    }
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    ranked.resize(std::min(ranked.size(), top_k_));
    Json list = Json::array();
    for (const auto& [score, label] : ranked) {
      list.push_back({{"label", runner_.config().id2label[label]}, {"score", score}});
    }
    return list;
  }

  HeadRunner runner_;
  Function function_;
  size_t top_k_;
  int64_t batch_size_;
  double temperature_;
  ColumnNames columns_;  // of the training data
};

}  // namespace

std::unique_ptr<Predictor> make_text_classification(const std::string& folder,
                                                    const PredictOptions& options) {
  return std::make_unique<TextClassification>(folder, options);
}

}  // namespace finetune
