// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <memory>
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

// decision.json and decision_template.jinja of a model's folder; without them the defaults.
struct DecisionFiles {
  DecisionSettings settings = {};
  std::shared_ptr<const chat::ChatTemplate> decision_template = {};  // null: the generic prompt
  // `template_path`: a template in place of the folder's. Throws Error(kData).
  [[nodiscard]] static DecisionFiles read(const std::string& folder,
                                          const std::optional<std::string>& template_path);
};
[[nodiscard]] std::shared_ptr<const DecisionPrompter> make_prompter(
    const DecisionFiles& files, const Tokenizer& tokenizer,
    std::shared_ptr<const chat::ChatTemplate> chat_template, const std::string& date);

// The ids of the labels' tokens by type, up to the first label that is no single token.
using LabelIds = std::array<std::vector<int32_t>, kQuestionTypes>;
[[nodiscard]] LabelIds label_ids(const DecisionSettings& settings,
                                 const DecisionPrompter& prompter);
[[nodiscard]] std::vector<int64_t> sizes_of(const LabelIds& labels);
// The rows of a jev head by type.
[[nodiscard]] LabelIds jev_rows(const JevConfig& jev);
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
  std::vector<int64_t> positions;  // [G], row * length + mark - 1
  int64_t options = 1;             // K
};
// Returns their scores [G, K] in float32, -1e9 beyond a question's options.
[[nodiscard]] Tensor decision_scores(Model& model, const ModelInput& input,
                                     const BatchGroups& groups, const LabelIds& labels);

struct DecisionTaskOptions {
  LabelIds labels;
  double label_smoothing_factor = 0.0;
  std::array<double, kQuestionTypes> temperature = {1.0, 1.0, 1.0};  // of evaluation, by type
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
