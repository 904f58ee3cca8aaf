// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "finetune/chat/chat_template.h"
#include "finetune/data/decision_dataset.h"
#include "finetune/data/decision_prompt.h"
#include "finetune/task/metrics.h"
#include "finetune/task/prediction_files.h"
#include "finetune/task/predictor.h"
#include "finetune/task/setup.h"
#include "finetune/task/task.h"
#include "finetune/task/tasks.h"

namespace finetune {

// Answers typed questions about a text with a calibrated probability for each option, from one
// forward pass: transformers' decision models. An option's score is the logit of its label's token
// at the question's mark.

const TaskKeys& decision_keys();
const TaskDescriptor& decision_descriptor();

[[nodiscard]] std::unique_ptr<TaskSetup> make_decision_setup(const SetupContext& context);
[[nodiscard]] std::unique_ptr<Predictor> make_decision_predictor(const std::string& folder,
                                                                 const PredictOptions& options);

// What scores the options of a question.
enum class OptionScores {
  kLabels,  // the logit of each one's label, a token of a decoder
  kJev,     // a row of a matrix for each one (JevConfig)
  kLaya,    // each one's mark (LayaConfig)
};
[[nodiscard]] OptionScores option_scores(const ModelConfig& config);

// decision.json and decision_template.jinja of a model's folder, or rl_agent_config.json of one
// with Laya's head; without them the defaults.
struct DecisionFiles {
  DecisionSettings settings = {};
  nlohmann::ordered_json laya = nlohmann::ordered_json::object();    // rl_agent_config.json
  std::shared_ptr<const chat::ChatTemplate> decision_template = {};  // null: the generic prompt
  // `template_path`: a template in place of the folder's. Throws Error(kData).
  [[nodiscard]] static DecisionFiles read(const std::string& folder,
                                          const std::optional<std::string>& template_path,
                                          OptionScores scores);
};

// The columns of a question's logits that are its options' scores, by type: those of the labels'
// tokens, up to the first label that is no single token; rows of a jev; none of laya.
using LabelIds = std::array<std::vector<int32_t>, kQuestionTypes>;

// How questions become what the model reads, and where its scores are.
struct DecisionForm {
  std::shared_ptr<const DecisionPrompter> prompter;
  LabelIds labels;
};
// `config` has the head. Throws Error(kConfig) if a template or a token is missing.
[[nodiscard]] DecisionForm make_form(const DecisionFiles& files, const ModelConfig& config,
                                     const Tokenizer& tokenizer,
                                     std::shared_ptr<const chat::ChatTemplate> chat_template,
                                     const std::string& date);
// The head that a new model gets: Yes and No of a noul, 26 options of the others.
[[nodiscard]] JevConfig fresh_jev();
// The prompt of models with that head: transformers' JEV_TEMPLATE, after the token that begins
// texts.
[[nodiscard]] std::shared_ptr<const chat::ChatTemplate> jev_template();

// The questions of a batch in order: G groups of at most K options.
struct BatchGroups {
  BatchGroups() = default;
  explicit BatchGroups(const Batch& batch);
  void add(DecisionGroup group, int64_t row, int64_t length);
  std::vector<DecisionGroup> groups;
  std::vector<int64_t> positions;  // row * length + mark - 1, of all marks of each in order
  int64_t options = 1;             // K
};
// Returns their scores [G, K] in float32, -1e9 beyond a question's options.
[[nodiscard]] Tensor decision_scores(Model& model, const ModelInput& input,
                                     const BatchGroups& groups, const LabelIds& labels);

struct DecisionTaskOptions {
  LabelIds labels;
  double label_smoothing_factor = 0.0;
  DecisionSettings settings = {};  // with the temperatures of evaluation
};
// `model` must outlive the task. One term: the cross entropy of the options' softmax with their
// probabilities, each question by its weight. Outputs::logits: [G, K], divided by the temperature.
[[nodiscard]] std::unique_ptr<Task> make_decision_task(Model& model, c10::Device device,
                                                       DecisionTaskOptions options);

// accuracy, brier, ece (of 15 bins of equal width), nll, and score_mae where there are scores.
// `calibrates`: also the best temperature of each type with enough questions.
[[nodiscard]] std::unique_ptr<PredictionFiles> make_decision_files();  // of validation data
[[nodiscard]] std::unique_ptr<Metrics> make_decision_metrics(bool calibrates);

}  // namespace finetune
