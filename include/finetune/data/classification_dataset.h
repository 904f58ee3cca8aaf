// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "finetune/data/labels.h"
#include "finetune/data/rows.h"
#include "finetune/data/token_dataset.h"

namespace finetune {

class Tokenizer;

// find_columns() (columns.h) finds columns that are not named. A text column that is named without
// a second one is used alone.
struct ClassificationOptions : SampleOptions {
  std::optional<std::string> text_column;
  std::optional<std::string> text_pair_column;
  std::optional<std::string> label_column;
  ProblemType problem = ProblemType::kSingleLabel;
  LabelMap labels;      // of single and multi label
  int64_t outputs = 1;  // numbers of a row in regression
};

// Single texts and pairs as run_glue and run_classification prepare them: truncated to
// max_seq_length, the longer text first. Example::label is the label's number, Example::values
// holds 0 and 1 for each label (multi label) or the numbers (regression).
//
// A label is found by its name; an integer that is no name counts as the label's number where no
// name is an integer, and -1 as not known (kIgnoredLabel) where it is no name. Without
// labels_required a missing or null label is kIgnoredLabel, and Example::values is empty as soon
// as one row lacks its values.
//
// Throws Error(kData) with file:line and column for what cannot be used, Error(kConfig) where
// max_seq_length leaves no room for text, and Interrupted.
[[nodiscard]] std::shared_ptr<const SequenceDataset> build_classification_dataset(
    const std::vector<std::string>& files, const Tokenizer& tokenizer,
    const ClassificationOptions& options);

}  // namespace finetune
