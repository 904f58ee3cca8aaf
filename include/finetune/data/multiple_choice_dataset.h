// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "finetune/data/rows.h"
#include "finetune/data/token_dataset.h"

namespace finetune {

class Tokenizer;

// find_columns() (columns.h) finds columns that are not named.
struct MultipleChoiceOptions : SampleOptions {
  std::optional<std::string> context_column;
  std::optional<std::string> prefix_column;  // in front of each choice, with a space: SWAG's sent2
  std::vector<std::string> choice_columns;   // one for each choice, or one that holds a list
  std::optional<std::string> label_column;   // else label, labels, answer, answerKey, answer_key
};

// Pairs (context, choice) as run_swag prepares them, truncated to max_seq_length, the longer text
// first; all rows have the same number of choices, at least two. A list of choices may be
// {"text": [...], "label": ["A", ...]}.
//
// The label is the choice's number from 0; or its label in the list, its column's name, its text
// where only one choice has that text, or a letter from A. Without labels_required a missing, null
// or negative label is kIgnoredLabel.
//
// Throws as build_classification_dataset does.
[[nodiscard]] std::shared_ptr<const SequenceDataset> build_multiple_choice_dataset(
    const std::vector<std::string>& files, const Tokenizer& tokenizer,
    const MultipleChoiceOptions& options);

}  // namespace finetune
