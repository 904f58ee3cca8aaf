// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/data/columns.h"
#include "finetune/task/setup.h"

namespace finetune {

// Returns the columns that the configuration names.
[[nodiscard]] ColumnNames named_columns(const TaskOptions& args);

// Returns and logs the columns of a split's rows: those that the keys name, else (if nothing is
// trained) those of the model's training, else a guess from the first row. Empty if the rows have
// no columns to choose from (plain text, tokens). Throws Error(kData).
[[nodiscard]] ColumnNames find_split_columns(const SetupContext& context, const SplitFiles& files,
                                             RowTask task, LabelUse labels);

}  // namespace finetune
