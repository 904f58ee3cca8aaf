// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/data/columns.h"
#include "finetune/task/setup.h"

namespace finetune {

// The columns that the configuration names.
[[nodiscard]] ColumnNames named_columns(const TrainingArgs& args);

// The columns of a split's rows: those that the keys name, else (where nothing is trained) those of
// the model's training, else a guess by the first row. Logs them. Empty where the rows have no
// columns to choose from (plain text, tokens). Throws Error(kData).
[[nodiscard]] ColumnNames find_split_columns(const SetupContext& context, const SplitFiles& files,
                                             RowTask task, LabelUse labels);

}  // namespace finetune
