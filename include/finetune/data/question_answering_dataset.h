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
  // Keep the questions and the offsets of each token: evaluation and prediction need them, training
  // does not.
  bool keep_questions = false;
};

struct Question {
  std::string id;  // its number in questions() where there is none
  std::string question;
  std::string context;
  std::vector<std::string> answers;  // empty: none, or not known
};

// A sample is a window of a question's context. Example::answer is the answer's first and last
// token, or the CLS token's position twice if the window does not contain the complete answer.
class QuestionAnsweringDataset final : public SampleView {
 public:
  struct Window {
    int64_t question = 0;       // its number in questions()
    int64_t first_token = 0;    // where the context begins in the sequence
    int64_t tokens = 0;         // of the context, in this window
    int64_t first_context = 0;  // ranges[first_context] is the range of the first of them
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

  // Available with keep_questions only. The windows of a question are consecutive, in the order of
  // its context; questions are in the order of the files. As in run_qa, max_samples can leave the
  // last questions without a window.
  [[nodiscard]] const std::vector<Question>& questions() const { return questions_; }
  [[nodiscard]] int64_t question_of(int64_t index) const;
  // Byte range of the context that a token of the sample covers; empty if it is not a token of the
  // context. run_qa's offset_mapping.
  [[nodiscard]] std::optional<TextRange> range(int64_t index, int64_t token) const;

 private:
  std::vector<Question> questions_;
  std::vector<Window> windows_;
  std::vector<TextRange> ranges_;
};

// Windows as run_qa prepares them: the question without leading white space, then the context (the
// other way round if the tokenizer pads on the left); only the context is truncated.
// Throws as build_classification_dataset does, and Error(kData) for an answer that is not at its
// answer_start, a question too long for max_seq_length, or a duplicate id.
[[nodiscard]] std::shared_ptr<const QuestionAnsweringDataset> build_question_answering_dataset(
    const std::vector<std::string>& files, const Tokenizer& tokenizer,
    const QuestionAnsweringOptions& options);

}  // namespace finetune
