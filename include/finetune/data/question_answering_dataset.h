// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "finetune/data/rows.h"
#include "finetune/data/token_dataset.h"
#include "finetune/tokenizer/tokenizer.h"

namespace finetune {

// Rows are SQuAD's articles ({"paragraphs": [...]}) or questions with columns: id, question,
// context and answers ({"text": [...], "answer_start": [...]} or a list of {"text",
// "answer_start"}). RowRange counts rows, max_samples counts questions and, as in run_qa, windows.
struct QuestionAnsweringOptions : SampleOptions {
  std::optional<std::string> question_column;  // else question
  std::optional<std::string> context_column;   // else context
  std::optional<std::string> answer_column;    // else answers
  int64_t doc_stride = 128;                    // tokens that two windows of a context share
  bool without_answer = false;                 // version_2_with_negative: answers may be empty
  // Keep the questions and where each token stands: evaluation and prediction need them, training
  // does not.
  bool keep_questions = false;
};

struct Question {
  std::string id;  // its number in questions() where there is none
  std::string question;
  std::string context;
  std::vector<std::string> answers;  // empty: none, or not known
};

// A sample is a window of a question's context. Example::answer holds its first and last token, or
// the CLS token's place twice where the window does not hold the whole answer.
class QuestionAnsweringDataset final : public SampleView {
 public:
  struct Window {
    int64_t question = 0;       // its number in questions()
    int64_t first_token = 0;    // where the context begins in the sequence
    int64_t tokens = 0;         // of the context, in this window
    int64_t first_context = 0;  // ranges[first_context] is where the first of them stands
  };
  struct Content {
    TokenContent tokens;
    std::vector<Question> questions;
    std::vector<Window> windows;
    std::vector<TextRange> ranges;  // tokens of all contexts
  };
  explicit QuestionAnsweringDataset(Content content);
  // Requires: as many windows as samples, or none.
  QuestionAnsweringDataset(std::shared_ptr<const SequenceDataset> samples, Content kept);

  // What follows is there with keep_questions alone. The windows of a question are consecutive, in
  // the order of its context; questions stand in the order of the files. As in run_qa, max_samples
  // can leave the last questions without a window.
  [[nodiscard]] const std::vector<Question>& questions() const { return questions_; }
  [[nodiscard]] int64_t question_of(int64_t index) const;
  // Bytes of the context that a token of the sample stands for; nothing where it is no token of
  // the context. run_qa's offset_mapping.
  [[nodiscard]] std::optional<TextRange> range(int64_t index, int64_t token) const;

 private:
  std::vector<Question> questions_;
  std::vector<Window> windows_;
  std::vector<TextRange> ranges_;
};

// Windows as run_qa prepares them: the question without white space in front, then the context (the
// other way round where the tokenizer pads on the left), the context alone truncated.
// Throws as build_classification_dataset does, and Error(kData) for an answer that does not stand
// at its answer_start, a question too long for max_seq_length, or an id that is there twice.
[[nodiscard]] std::shared_ptr<const QuestionAnsweringDataset> build_question_answering_dataset(
    const std::vector<std::string>& files, const Tokenizer& tokenizer,
    const QuestionAnsweringOptions& options);

}  // namespace finetune
