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
// "answer_start"}). RowRange counts rows; max_samples limits questions and, as in run_qa, windows.
struct QuestionAnsweringOptions : SampleOptions {
  std::optional<std::string> question_column;  // unset: "question"
  std::optional<std::string> context_column;   // unset: "context"
  std::optional<std::string> answer_column;    // unset: "answers"
  int64_t doc_stride = 128;                    // tokens shared by consecutive windows of a context
  bool without_answer = false;                 // version_2_with_negative: answers may be empty
  // Keep the questions and each token's offsets, which evaluation and prediction need but training
  // does not.
  bool keep_questions = false;
};

struct Question {
  std::string id;  // its index in questions() if the data has none
  std::string question;
  std::string context;
  std::vector<std::string> answers;  // empty: no answer, or unknown
};

// A sample is a window of a question's context. Example::answer is the answer's first and last
// token, or the CLS token's position twice if the window does not contain the complete answer.
class QuestionAnsweringDataset final : public SampleView {
 public:
  struct Window {
    int64_t question = 0;       // index in questions()
    int64_t first_token = 0;    // index in the sequence where the context begins
    int64_t tokens = 0;         // of the context, in this window
    int64_t first_context = 0;  // ranges[first_context] is the range of the first context token
  };
  struct Content {
    TokenContent tokens;
    std::vector<Question> questions;
    std::vector<Window> windows;
    std::vector<TextRange> ranges;  // tokens of all contexts
  };
  explicit QuestionAnsweringDataset(Content content);
  // Requires: one window per sample, or no windows.
  QuestionAnsweringDataset(std::shared_ptr<const SequenceDataset> samples, Content kept);

  // Only with keep_questions. The windows of a question are consecutive, in the order of its
  // context; questions are in the order of the files. As in run_qa, max_samples can leave the last
  // questions without a window.
  [[nodiscard]] const std::vector<Question>& questions() const { return questions_; }
  [[nodiscard]] int64_t question_of(int64_t index) const;
  // Returns the byte range of the context that a token of the sample covers (run_qa's
  // offset_mapping); nullopt for tokens outside the context.
  [[nodiscard]] std::optional<TextRange> range(int64_t index, int64_t token) const;

 private:
  std::vector<Question> questions_;
  std::vector<Window> windows_;
  std::vector<TextRange> ranges_;
};

// Builds windows as run_qa does: the question without leading white space, then the context (in
// reverse order if the tokenizer pads on the left); only the context is truncated. Throws as
// build_classification_dataset does, and Error(kData) for an answer that is not at its
// answer_start, a question too long for max_seq_length, or a duplicate id.
[[nodiscard]] std::shared_ptr<const QuestionAnsweringDataset> build_question_answering_dataset(
    const std::vector<std::string>& files, const Tokenizer& tokenizer,
    const QuestionAnsweringOptions& options);

}  // namespace finetune
