// SPDX-License-Identifier: MIT
#pragma once

#include "data/json_row.h"
#include "data/row.h"
#include "finetune/data/columns.h"

namespace finetune {

// As the public one, of a row that is at hand.
[[nodiscard]] FoundColumns find_columns(const Row& row, const ColumnSearch& search);
// The label column of sequence classification. Throws Error(kData) where there is none.
[[nodiscard]] std::string find_label_column(const Row& row,
                                            const std::optional<std::string>& wanted);
// What masked language modelling reads of the rows: ids, or a column of text.
[[nodiscard]] RowSchema find_schema(const Row& row, const std::optional<std::string>& text_column);

}  // namespace finetune
