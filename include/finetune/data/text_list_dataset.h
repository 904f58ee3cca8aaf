// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "finetune/data/rows.h"
#include "finetune/data/token_dataset.h"

namespace finetune {

class Tokenizer;

struct TextListOptions : SampleOptions {
  std::vector<std::string> text_columns;    // each a text, or a list of texts
  std::optional<std::string> label_column;  // a number, or a list of numbers
  bool joined = false;  // the columns that a row has, joined by spaces, are its one text
  // A row may have fewer texts than another: short sequences, whose labels are NaN, take their
  // places. Rows without a label column have 1 for their first document and 0 for the others then.
  bool lists_may_differ = false;
  bool pairs_with_first = false;  // each sequence is a pair of the first text and another one
  bool bare = false;              // without special tokens, for pairs that are made later
  std::map<std::string, std::string> prompts = {};  // column -> text before each of its texts
  std::string label_rule = {};  // names the next member: labels in the cache passed the same
  // Returns why a label is not allowed, and what to do; empty: it is.
  std::function<std::string(double label)> problem_of_label = {};
};

// Builds samples of several sequences, each from one text, or from the first text and one of the
// others, truncated to max_seq_length: those of Dataset::choices() follow the columns in their
// order. All rows have the same number of texts and labels, except with lists_may_differ.
// Example::values has the label, or the
// labels, if there is a label column.
//
// Throws Error(kData) with file:line and column for unusable input, also for an empty text, and
// Error(kConfig) if max_seq_length leaves no room for text, and Interrupted.
[[nodiscard]] std::shared_ptr<const SequenceDataset> build_text_list_dataset(
    const std::vector<std::string>& files, const Tokenizer& tokenizer,
    const TextListOptions& options);

}  // namespace finetune
