// SPDX-License-Identifier: MIT
#include "task/question_answering/answer_files.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "finetune/base/json.h"
#include "finetune/base/model_files.h"

namespace finetune {
namespace {

std::string python_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true);
}

std::string python_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return format_double(value);
}

// Formats one of the n best answers. In run_qa's placeholder for no answer the text comes first.
std::string candidate_text(const AnswerCandidate& candidate) {
  const std::string text = "            \"text\": " + python_text(candidate.text) + ",\n";
  const std::string logits =
      "            \"start_logit\": " + python_number(candidate.start_logit) +
      ",\n            \"end_logit\": " + python_number(candidate.end_logit) + ",\n";
  const bool placeholder = candidate.range == TextRange{} && candidate.text == "empty";
  return "        {\n" + (placeholder ? text + logits : logits + text) +
         "            \"probability\": " + python_number(candidate.probability) + "\n        }";
}

}  // namespace

void AnswerFiles::ObjectText::add(const std::string& key, const std::string& value) {
  text_ += (text_.empty() ? "{\n    " : ",\n    ") + python_text(key) + ": " + value;
}

std::string AnswerFiles::ObjectText::finish() const {
  return (text_.empty() ? "{" : text_ + "\n") + "}\n";
}

void AnswerFiles::take(const Answer& answer, const Question& question) {
  predictions_.add(answer.id, python_text(answer.text));
  std::string list;
  for (const AnswerCandidate& candidate : answer.n_best) {
    list += (list.empty() ? "[\n" : ",\n") + candidate_text(candidate);
  }
  n_best_.add(answer.id, list.empty() ? "[]" : list + "\n    ]");
  if (has_odds_) null_odds_.add(answer.id, python_number(answer.null_odds.value_or(0.0)));
  rate(answer, question);
}

void AnswerFiles::rate(const Answer& answer, const Question& question) {
  const int64_t number = questions_++;
  knows_answers_ = knows_answers_ || !question.answers.empty();
  if (question.answers.empty() && !has_odds_) return;
  AnswerScores scores(has_odds_);
  scores.add(answer.text, question.answers);
  double f1 = 0.0;
  for (const auto& [name, value] : scores.compute()) {
    if (name == "f1") f1 = value;
  }
  const double share = answer.n_best.empty() ? 0.0 : answer.n_best.front().probability;
  worst_.add(number, f1, {.first = -f1, .second = share}, [&]() -> WorstSamples::Json {
    return {{"id", question.id},         {"text", question.question}, {"context", question.context},
            {"label", question.answers}, {"predicted", answer.text},  {"predicted_score", share}};
  });
}

void AnswerFiles::write(FileSystem& files, const std::string& output_dir) const {
  files.make_directories(output_dir);
  const std::string start = join_path(output_dir, stage_);
  files.write_atomically(start + kAnswersEnd, predictions_.finish());
  files.write_atomically(start + kBestAnswersEnd, n_best_.finish());
  if (has_odds_) files.write_atomically(start + kNullOddsEnd, null_odds_.finish());
  if (knows_answers_) worst_.write(files, output_dir, stage_ == "eval" ? "validation" : "test");
}

}  // namespace finetune
