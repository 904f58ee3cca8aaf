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

// Columns that are not named are found by find_columns() (columns.h). If only the first text column
// is named, there is no second one.
struct ClassificationOptions : SampleOptions {
  std::optional<std::string> text_column;
  std::optional<std::string> text_pair_column;
  std::optional<std::string> label_column;
  ProblemType problem = ProblemType::kSingleLabel;
  LabelMap labels;      // of single-label and multi-label classification
  int64_t outputs = 1;  // values per row in regression
};

// Builds single texts and pairs like run_glue and run_classification, truncated to max_seq_length,
// the longer text first. Example::label is the label's id; Example::values has 0 or 1 for each
// label (multi label) or the values (regression).
//
// A label is found by its name. If no label's name is an integer, integers are label ids, and -1
// means unknown (kIgnoredLabel). Without labels_required a missing or null label is kIgnoredLabel,
// and Example::values is empty if any row lacks its values.
//
// Throws Error(kData) with file:line and column for unusable input, Error(kConfig) if
// max_seq_length leaves no room for text, and Interrupted.
[[nodiscard]] std::shared_ptr<const SequenceDataset> build_classification_dataset(
    const std::vector<std::string>& files, const Tokenizer& tokenizer,
    const ClassificationOptions& options);

}  // namespace finetune
