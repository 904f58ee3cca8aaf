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

// Columns that are not named are guessed from the first row, and the guess is logged: as run_glue,
// sentence1 and sentence2, else the first two columns beside the label where both hold text, else
// the only column of text; the label is "label", "labels" or "label_ids". Numbers of rows (id, idx,
// guid, ..._id) are no text. A text column that is named without a second one is taken alone.
struct ClassificationOptions : SampleOptions {
  std::optional<std::string> text_column;
  std::optional<std::string> text_pair_column;
  std::optional<std::string> label_column;
  ProblemType problem = ProblemType::kSingleLabel;
  LabelMap labels;      // of single and multi label
  int64_t outputs = 1;  // numbers of a row in regression
};

// The columns of a file, so that others can be read alike.
struct ClassificationColumns {
  std::string text;
  std::optional<std::string> pair;
  std::optional<std::string> label;  // nothing only where labels are not required
};
[[nodiscard]] ClassificationColumns find_classification_columns(
    const std::vector<std::string>& files, const ClassificationOptions& options);

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
