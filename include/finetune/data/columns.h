// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "finetune/data/rows.h"

namespace finetune {

// The columns of a task's rows, by the configuration's keys; unset: not named, or not there.
struct ColumnNames {
  std::optional<std::string> text_column = {};  // see the key: also the words, or the question
  std::optional<std::string> text_pair_column = {};
  std::optional<std::string> context_column = {};
  std::vector<std::string> choice_columns = {};  // one for each choice, or one that holds a list
  std::optional<std::string> label_column = {};

  [[nodiscard]] bool empty() const { return *this == ColumnNames{}; }
  friend bool operator==(const ColumnNames&, const ColumnNames&) = default;
};

// What rows are read for. kText: masked language modelling and pretraining.
enum class RowTask {
  kText,
  kSequenceClassification,
  kTokenClassification,
  kMultipleChoice,
  kQuestionAnswering
};

enum class LabelUse {
  kRequired,  // there must be a column of labels
  kOptional,  // it is taken where there is one
  kUnused,
};

struct ColumnSearch {
  RowTask task = RowTask::kText;
  ColumnNames named = {};    // by the user; these must be there
  ColumnNames trained = {};  // what the model was trained with; taken where nothing is named
  LabelUse labels = LabelUse::kRequired;
  std::string key_prefix = {};  // of keys in messages: "--" on a command line
};

struct FoundColumns {
  ColumnNames names;
  // One line: "text_column: 'a' (set); label_column: 'label' (guessed from f.csv:2)".
  std::string report;
  std::string warning;  // empty, or why a trained column is not the one that is taken
};

// The columns of a row: those that are named, else those of the training, else a guess. Training,
// evaluation and prediction share this implementation of the guess.
//
// Names match exactly or else without case and surrounding spaces. The guess takes usual names
// ("label", "labels", "target", "class", ...; "sentence1" with "sentence2", "premise" with
// "hypothesis"; "tokens"; "question"; "ending0", ...). In sequence classification the texts are
// otherwise the first two columns apart from the label where both hold text, else the only column
// of text. Row numbers (id, idx, guid, index, ..._id) are no text.
//
// If a column of the training is missing in the row and exactly one other column contains text,
// that one is used, with a warning. Throws Error(kData) with the row's position and its columns.
[[nodiscard]] FoundColumns find_columns(const DataRow& row, const ColumnSearch& search);
// The same for the first row of files.
[[nodiscard]] FoundColumns find_columns(const std::vector<std::string>& files,
                                        const RowOptions& options, const ColumnSearch& search);

// The column of `columns` (an object) that `name` refers to; nullopt if none matches, or several.
[[nodiscard]] std::optional<std::string> match_column(const nlohmann::ordered_json& columns,
                                                      const std::string& name);

}  // namespace finetune
