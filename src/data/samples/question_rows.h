// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/columns/row.h"
#include "finetune/data/question_answering_dataset.h"

namespace finetune {

// A question as written in a file.
struct AskedQuestion {
  Question question;  // id is empty if there is none
  std::string position;
  bool answer_known = false;        // the data has an answer or says that there is none
  std::optional<TextRange> answer;  // the first one, in bytes of the context
};

// Reads the questions of rows: SQuAD's articles or rows with columns.
class QuestionReader {
 public:
  explicit QuestionReader(const QuestionAnsweringOptions& options);

  // Throws Error(kData) with position and id.
  [[nodiscard]] std::vector<AskedQuestion> read(const Row& row) const;

 private:
  [[nodiscard]] AskedQuestion read_question(const Row& row, const std::string& context) const;
  void read_answers(const Row& row, AskedQuestion& asked) const;
  void take_answer(const Row& row, const Row::Json& text, const Row::Json* start,
                   AskedQuestion& asked) const;

  std::string question_column_;
  std::string context_column_;
  std::string answer_column_;
  bool without_answer_;
  bool answers_required_;
};

}  // namespace finetune
