// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "data/columns/row.h"

// Rows of preference data: a prompt with two answers, or with one and its label. Prompts and
// answers are texts, or lists of messages.
namespace finetune {

struct PreferencePair {
  Row::Json prompt, chosen, rejected;
  bool has_questions = false;     // a message of the user after the prompt
  bool has_other_prompt = false;  // column `prompt` is not among the messages that both begin with
  bool repeats_prompt = false;    // the texts of both sides begin with the prompt's
};

// Reads chosen and rejected, with the prompt as build_pair_dataset() finds it. Throws Error(kData)
// with the row's position; Error(kConfig) for a prompt whose column has another name.
[[nodiscard]] PreferencePair preference_pair_of(const Row& row);

struct LabelledAnswer {
  Row::Json prompt, text;
  bool is_desirable = false;
  bool is_of_pair = false;
  bool has_questions = false;
  bool has_other_prompt = false;
};

// The answers of a row: one with a label, or those of a pair, the chosen one first. Throws as
// preference_pair_of().
[[nodiscard]] std::vector<LabelledAnswer> labelled_answers_of(const Row& row);

// Whether an answer has no text and no tool call, so that it would teach to end at once.
[[nodiscard]] bool is_empty_answer(const Row::Json& answer);

// Where the row's prompt is what both texts begin with: the names of columns of text that nothing
// reads, "the column 'source'"; else empty.
[[nodiscard]] std::string unread_texts(const Row& row);

}  // namespace finetune
