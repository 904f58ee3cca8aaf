// SPDX-License-Identifier: MIT
#include <ATen/ops/softmax.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string_view>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/text.h"
#include "finetune/chat/find_template.h"
#include "finetune/model/model_folder.h"
#include "finetune/task/chat_tokens.h"
#include "finetune/tensor/device.h"
#include "task/decision/decision.h"
#include "task/loss/model_input.h"
#include "task/predict/head_runner.h"
#include "task/predict/text_encoder.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

class DecisionPredictor final : public Predictor {
 public:
  DecisionPredictor(const std::string& folder, const PredictOptions& options)
      : folder_(resolve_model_folder(folder, "MODEL_DIR")),
        config_(read_model_config(folder_)),
        encoder_(folder_, config_),
        device_(pick_prediction_device(options.use_cpu)),
        batch_size_(options.batch_size),
        files_(DecisionFiles::read(folder_, std::nullopt, option_scores(config_))) {
    const bool has_labels = option_scores(config_) == OptionScores::kLabels;
    if (has_labels && !is_causal(config_)) {
      throw Error(ErrorKind::kData, folder_ + ": a " + config_.model_type +
                                        " predicts masked words, and has no head for decisions");
    }
    try {
      form_ = make_form(
          files_, config_, encoder_.tokenizer(),
          chat::find_chat_template(folder_, options.chat_template_path, "--chat_template_path"),
          chat_date_today());
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kConfig) throw;
      throw Error(ErrorKind::kData, folder_ + ": " + error.what());
    }
    model_ = load_for_prediction(has_labels ? std::nullopt : std::optional(Head::kDecision),
                                 "decision", folder_, config_, device_, options);
  }

  std::vector<Json> answer(const std::vector<Query>& queries) override {
    std::vector<Json> answers(queries.size(), Json::object());
    std::vector<Asked> asked;
    for (size_t i = 0; i < queries.size(); ++i) {
      try {
        read(queries[i], i, asked);
      } catch (const Error& error) {
        const std::string what = error.what();
        if (error.kind() != ErrorKind::kData || what.starts_with(queries[i].where)) throw;
        throw Error(ErrorKind::kData, queries[i].where + ": " + what);
      }
    }
    const auto step = static_cast<size_t>(batch_size_);
    for (size_t begin = 0; begin < asked.size(); begin += step) {
      const size_t count = std::min(step, asked.size() - begin);
      run(std::span(asked).subspan(begin, count), answers);
    }
    return answers;
  }

  [[nodiscard]] std::optional<double> model_seconds() const override { return model_seconds_; }

 private:
  struct Asked {
    size_t query;
    std::vector<DecisionQuestion> questions;
    DecisionPrompt prompt;
  };

  void read(const Query& query, size_t index, std::vector<Asked>& asked) const {
    const bool is_request = query.text.starts_with('{');
    if (query.conversation.empty() && !is_request) {
      throw Error(ErrorKind::kData,
                  "is a text, and a decision model answers requests: give JSON lines of "
                  "{\"state\", \"questions\"} with --input, or one as --text");
    }
    const std::string& text = query.conversation.empty() ? query.text : query.conversation;
    const Json request = decision_request(parse_json(text, query.where), query.where);
    std::vector<DecisionQuestion> questions =
        parse_questions(request.at("questions"), files_.settings);
    const auto add = [&](std::vector<DecisionQuestion> together) {
      for (const DecisionQuestion& question : together) form_.prompter->check(question);
      DecisionPrompt prompt = form_.prompter->prompt(request.at("state"), together);
      if (!prompt.unreadable.empty()) {
        throw Error(ErrorKind::kData,
                    "question '" + together.front().name + "': " + prompt.unreadable);
      }
      encoder_.check(prompt.ids, query.where);
      if (std::ssize(prompt.ids) > config_.max_length()) {
        throw Error(ErrorKind::kData,
                    format_text("question '{}' has {} tokens, and the model takes {}; shorten it",
                                together.front().name, prompt.ids.size(), config_.max_length()));
      }
      asked.push_back(
          {.query = index, .questions = std::move(together), .prompt = std::move(prompt)});
    };
    if (form_.prompter->asks_together()) return add(std::move(questions));
    for (DecisionQuestion& question : questions) add({std::move(question)});
  }

  void run(std::span<const Asked> asked, std::vector<Json>& answers) {
    std::vector<ModelText> rows;
    for (const Asked& one : asked) {
      ModelText row;
      row.ids = one.prompt.ids;
      row.token_types.assign(row.ids.size(), 0);
      rows.push_back(std::move(row));
    }
    const Batch batch = make_batch(rows, 0);
    BatchGroups groups;
    for (size_t i = 0; i < asked.size(); ++i) {
      for (size_t q = 0; q < asked[i].questions.size(); ++q) {
        const DecisionQuestion& question = asked[i].questions[q];
        groups.add({.type = question.type,
                    .marks = asked[i].prompt.marks[q],
                    .target = {},
                    .options = std::ssize(question.options)},
                   static_cast<int64_t>(i), batch.length);
      }
    }
    const c10::InferenceMode inference;
    const auto begun = std::chrono::steady_clock::now();
    const Tensor scores = decision_scores(*model_, make_model_input(batch, device_, std::nullopt),
                                          groups, form_.labels)
                              .to(at::kCPU, at::kDouble);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begun;
    model_seconds_ += taken.count();
    int64_t row = 0;
    for (const Asked& one : asked) {
      for (const DecisionQuestion& question : one.questions) {
        const Tensor own = scores[row++].narrow(0, 0, std::ssize(question.options));
        require_finite(own, folder_);
        const double temperature =
            files_.settings.temperature_of(question.type, std::ssize(question.options));
        const Tensor p = at::softmax(own / temperature, -1).contiguous();
        const auto* values = p.const_data_ptr<double>();
        answers[one.query][question.name] =
            decision_answer(question, std::vector<double>(values, values + p.numel()));
      }
    }
  }

  std::string folder_;
  ModelConfig config_;
  TextEncoder encoder_;
  c10::Device device_;
  int64_t batch_size_;
  DecisionFiles files_;
  DecisionForm form_;
  double model_seconds_ = 0.0;
  std::unique_ptr<Model> model_;
};

}  // namespace

std::unique_ptr<Predictor> make_decision_predictor(const std::string& folder,
                                                   const PredictOptions& options) {
  return std::make_unique<DecisionPredictor>(folder, options);
}

}  // namespace finetune
