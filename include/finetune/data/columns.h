// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "finetune/data/rows.h"

namespace finetune {

// The columns that a task reads, by configuration key; unset: not named, or not present.
struct ColumnNames {
  std::optional<std::string> text_column = {};  // also the words or the question, see the key
  std::optional<std::string> text_pair_column = {};
  std::optional<std::string> context_column = {};
  std::vector<std::string> choice_columns = {};  // one for each choice, or one column of lists
  std::optional<std::string> label_column = {};
  std::vector<std::string> text_columns = {};  // of texts that are embedded each

  [[nodiscard]] bool empty() const { return *this == ColumnNames{}; }
  friend bool operator==(const ColumnNames&, const ColumnNames&) = default;
};

// The task that rows are read for. kText: language modelling and pretraining; kChat: sft.
enum class RowTask {
  kText,
  kChat,
  kSequenceClassification,
  kTokenClassification,
  kMultipleChoice,
  kQuestionAnswering,
  kEmbedding,  // several texts; in prediction (LabelUse::kUnused) one
  kDecision    // requests, by the names of their columns
};

// Whether rows become text by a chat template.
[[nodiscard]] constexpr bool renders_chat(RowTask rows) {
  return rows == RowTask::kChat || rows == RowTask::kDecision;
}

enum class LabelUse {
  kRequired,  // a label column must exist
  kOptional,  // a label column is used if it exists
  kUnused,
};

struct ColumnSearch {
  RowTask task = RowTask::kText;
  ColumnNames named = {};    // by the user; must exist
  ColumnNames trained = {};  // columns that the model was trained with; used if nothing is named
  LabelUse labels = LabelUse::kRequired;
  std::string key_prefix = {};  // of keys in messages: "--" for command-line options
};

struct FoundColumns {
  ColumnNames names;
  // One line: "text_column: 'a' (set); label_column: 'label' (guessed from f.csv:2)".
  std::string report;
  std::string warning;  // why a column of the training is not used; empty if it is
};

// Finds the columns of a row: those that are named, else those of the training, else a guess.
// Training, evaluation and prediction share this implementation of the guess.
//
// Names match exactly, or else ignoring case and surrounding spaces. The guess looks for usual
// names ("label", "labels", "target", "class", ...; "sentence1" with "sentence2", "premise" with
// "hypothesis"; "tokens"; "question"; "ending0", ...). For sequence classification without such
// names, the texts are the first two columns other than the label if both contain text, else the
// only text column. Row numbers (id, idx, guid, index, ..._id) do not count as text.
//
// If a column of the training is missing in the row and exactly one other column contains text,
// that one is used, with a warning. Throws Error(kData) with the row's position and its columns.
[[nodiscard]] FoundColumns find_columns(const DataRow& row, const ColumnSearch& search);
// The same for the first row of `files`.
[[nodiscard]] FoundColumns find_columns(const std::vector<std::string>& files,
                                        const RowOptions& options, const ColumnSearch& search);

// Returns the column of `columns` (an object) that `name` refers to; nullopt if none or several
// match.
[[nodiscard]] std::optional<std::string> match_column(const nlohmann::ordered_json& columns,
                                                      const std::string& name);

}  // namespace finetune
