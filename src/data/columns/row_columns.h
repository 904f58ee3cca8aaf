// SPDX-License-Identifier: MIT
#pragma once

#include "data/columns/json_row.h"
#include "data/columns/row.h"
#include "finetune/data/columns.h"

namespace finetune {

// Like the public function, for a given row.
[[nodiscard]] FoundColumns find_columns(const Row& row, const ColumnSearch& search);
// Returns the label column of sequence classification. Throws Error(kData) if there is none.
[[nodiscard]] std::string find_label_column(const Row& row,
                                            const std::optional<std::string>& wanted);
// Returns what language modelling reads from the rows: ids, or a column of text.
[[nodiscard]] RowSchema find_schema(const Row& row, const std::optional<std::string>& text_column);

}  // namespace finetune
