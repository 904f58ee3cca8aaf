// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace finetune {

// Decision models answer typed questions about a `state` with a probability for each option: the
// requests of System One's API, {"state": ..., "questions": {name: question}}, as transformers'
// decision/ reads them.

// In the order of transformers' Question.questions_types.
enum class QuestionType : int32_t {
  kNoul,    // {"type": "noul", "criteria": {"true": ..., "false": ...}}: yes or no
  kChoice,  // {"type": "choice", "criteria": {option: description}}, or a list of options
  kScore,   // {"type": "score", "criteria": [level, ...]}, the lowest first
};
inline constexpr size_t kQuestionTypes = 3;
[[nodiscard]] std::string_view name_of(QuestionType type);

// The content of decision.json, and the defaults of a folder without it.
struct DecisionSettings {
  // By type: the texts of the tokens whose logits score the options, in their order. Empty: Yes and
  // No of noul, else A to Z.
  std::array<std::vector<std::string>, kQuestionTypes> labels = {};
  std::array<double, kQuestionTypes> temperature = {1.0, 1.0, 1.0};  // divides the scores
  // Laya's instead, by type and number of options: "choice:2", "choice:3-5", "choice:6-10" and
  // "choice:11+". Not in the file.
  std::map<std::string, double> temperature_by_options = {};
  std::vector<std::string> noul_options = {"true", "false"};  // in the order of the template
  bool sanitize_control_tokens = true;  // those that a request spells are encoded as text
  std::optional<std::string> adapter = {};

  // Not in the file: whether labels score the options, of which there are as many at most.
  bool has_labels = true;

  // Throws Error(kData) that begins with `where`.
  [[nodiscard]] static DecisionSettings parse(std::string_view text, const std::string& where);
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::vector<std::string> labels_of(QuestionType type) const;
  [[nodiscard]] double temperature_of(QuestionType type, int64_t options) const;
};

// A question, its options in the order of the template.
struct DecisionQuestion {
  std::string name;
  QuestionType type = QuestionType::kNoul;
  std::string instructions = "null";      // JSON: a text, a list or an object
  std::vector<std::string> options;       // of a score "0", "1", ...; of a noul "true" and "false"
  std::vector<std::string> labels;        // as many, or none without has_labels
  std::vector<std::string> descriptions;  // as many, as JSON: null where the request has none

  // The same question with its options in another order: option i is order[i] of this one.
  [[nodiscard]] DecisionQuestion reordered(const std::vector<size_t>& order) const;
  // What templates read.
  [[nodiscard]] nlohmann::ordered_json json() const;
};

// Throws Error(kData) for a number that prompts would render with other digits: nothing here has
// integers of more than 64 bits.
void check_numbers(const nlohmann::ordered_json& json);

// Returns the questions of a request. Throws Error(kData) that names the question.
[[nodiscard]] std::vector<DecisionQuestion> parse_questions(const nlohmann::ordered_json& questions,
                                                            const DecisionSettings& settings);

// The probabilities that a row gives to the options of a question, in their order:
// - `expected`: the name of an option, true or false of a noul, the number of a level (2.5 is half
//   of each of two);
// - `gold`: {"probabilities": {option: p}}, which sum to 1;
// - `answers`: an answer as predict prints it: {"noul": p}, or {"choice" or "score", and
//   "probabilities"}.
// Throws Error(kData), without the row's position, for an answer that the question does not have.
[[nodiscard]] std::vector<float> expected_target(const DecisionQuestion& question,
                                                 const nlohmann::ordered_json& expected);
[[nodiscard]] std::vector<float> probable_target(const DecisionQuestion& question,
                                                 const nlohmann::ordered_json& probabilities);
[[nodiscard]] std::vector<float> answered_target(const DecisionQuestion& question,
                                                 const nlohmann::ordered_json& answer);

// The answer of System One's API to a question, from the probabilities of its options.
[[nodiscard]] nlohmann::ordered_json decision_answer(const DecisionQuestion& question,
                                                     const std::vector<double>& probabilities);

}  // namespace finetune
