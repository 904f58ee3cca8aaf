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

// Columns that are not named are found by find_columns() (columns.h).
struct MultipleChoiceOptions : SampleOptions {
  std::optional<std::string> context_column;
  std::optional<std::string> prefix_column;  // prepended to each choice, with a space: SWAG's sent2
  std::vector<std::string> choice_columns;   // one for each choice, or one column of lists
  std::optional<std::string> label_column;   // unset: label, labels, answer, answerKey, answer_key
};

// Builds pairs (context, choice) like run_swag, truncated to max_seq_length, the longer text first.
// All rows have the same number of choices, at least two. A list of choices may be {"text": [...],
// "label": ["A", ...]}.
//
// The label is the choice's index from 0, its label in the list, its column's name, its text if
// only one choice has that text, or a letter from A. Without labels_required a missing, null or
// negative label is kIgnoredLabel.
//
// Throws as build_classification_dataset does.
[[nodiscard]] std::shared_ptr<const SequenceDataset> build_multiple_choice_dataset(
    const std::vector<std::string>& files, const Tokenizer& tokenizer,
    const MultipleChoiceOptions& options);

}  // namespace finetune
