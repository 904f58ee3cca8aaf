// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "finetune/data/chat_dataset.h"

namespace finetune {

struct PairOptions : ChatOptions {
  // Labels are all tokens of the chosen sequence, and Example::values has the length of the prompt
  // in tokens; false: labels are those after the prompt.
  bool learns_chosen = false;
};

// How many rows had what.
struct PairCounts {
  int64_t rows = 0;
  int64_t truncated = 0;         // pairs with a sequence that is cut to max_seq_length
  int64_t same_answers = 0;      // rows left out: chosen is rejected, as far as it is read
  int64_t empty_answers = 0;     // rows left out: a side has nothing after the prompt
  int64_t long_prompts = 0;      // rows left out: the prompt fills max_seq_length
  int64_t bad = 0;               // rows left out: they cannot be read or rendered
  int64_t prompt_differs = 0;    // pairs whose prompt has other last tokens with an answer
  int64_t has_questions = 0;     // pairs with a message of the user after the prompt
  int64_t unread_prompts = 0;    // rows whose column `prompt` is not in their conversations
  int64_t repeated_prompts = 0;  // pairs whose texts both begin with the prompt's
  std::string first_difference;  // the end of the first such prompt
  // Texts without a prompt: columns of text that nothing reads, "the columns \"a\", \"b\"".
  std::string unread_columns;
};

// Pairs of a prompt with the chosen and with the rejected answer: samples of two sequences with
// labels (kIgnoredLabel elsewhere).
class PairDataset final : public KeptSamples {
 public:
  explicit PairDataset(std::shared_ptr<const SequenceDataset> rows);

  [[nodiscard]] const PairCounts& counts() const { return counts_; }
  void set_first_difference(std::string text) { counts_.first_difference = std::move(text); }
  void set_unread_columns(std::string names) { counts_.unread_columns = std::move(names); }
  // The first row that prompt_differs counts, from 1; 0: none.
  [[nodiscard]] int64_t first_differing() const { return first_differing_; }

 private:
  PairCounts counts_;
  int64_t first_differing_ = 0;
};

// Answers with a label instead of a pair, as TRL's KTOTrainer reads them: samples of two sequences,
// the prompt with its answer, and the prompt with the answer to another one, from which the
// divergence of the model is estimated: that of the sample before it (of the first one, that of the
// last); of a pair's sides, that of the same side of the pair before it.
// Labels are those of the answers; Example::label is 1 for a desirable answer, 0 for another.
class AnswerDataset final : public SampleView {
 public:
  AnswerDataset(std::shared_ptr<const SequenceDataset> samples, const PairCounts& counts,
                int64_t desirable)
      : SampleView(std::move(samples)), counts_(counts), desirable_(desirable) {}

  [[nodiscard]] const PairCounts& counts() const { return counts_; }  // of answers
  [[nodiscard]] int64_t desirable() const { return desirable_; }

 private:
  PairCounts counts_;
  int64_t desirable_;
};

// Reads rows of prompt, completion and label (true or false; LLaMA-Factory's kto_tag), or pairs as
// build_pair_dataset does, each of which is two answers. Throws as that does.
[[nodiscard]] std::shared_ptr<const AnswerDataset> build_answer_dataset(
    const std::vector<std::string>& files, const Tokenizer& tokenizer, const PairOptions& options);

// Reads preferences as TRL's DPOTrainer does: prompt, chosen and rejected, each a text or a list of
// messages (role and content, or from and value); without a prompt, it is the common beginning of
// both sides (TRL's extract_prompt). In addition, as LLaMA-Factory has them: instruction (input,
// system, history) or conversations instead of a prompt, and a side that is one message; and Orca's
// question with system. A system column becomes the first message, unless the prompt is what two
// texts begin with. The answer begins where the tokens of prompt and answer differ from the
// prompt's own, on either side.
//
// Throws as build_chat_dataset does.
[[nodiscard]] std::shared_ptr<const PairDataset> build_pair_dataset(
    const std::vector<std::string>& files, const Tokenizer& tokenizer, const PairOptions& options);

}  // namespace finetune
