// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/row.h"
#include "finetune/data/labels.h"

namespace finetune {

// Label, labels or label_ids where `wanted` is not set. Throws Error(kData) where none is there.
[[nodiscard]] std::string find_label_column(const Row& row,
                                            const std::optional<std::string>& wanted);

struct WordColumns {
  std::string words;
  std::optional<std::string> labels;
};
// As token_classification_dataset.h says; no labels only where they are not required.
[[nodiscard]] WordColumns find_word_columns(const Row& row,
                                            const std::optional<std::string>& text_column,
                                            const std::optional<std::string>& label_column,
                                            bool labels_required);

// A label's number; kIgnoredLabel for -1 that is no name. `column` is for messages.
[[nodiscard]] int64_t label_number(const LabelMap& labels, const Row::Json& value, const Row& row,
                                   const std::string& column);

// Text, decimal number, "True" or "False"; nothing for what can be no label.
[[nodiscard]] std::optional<std::string> label_name(const Row::Json& value);

// A finite number that a float holds. Where all is text it may be written as text.
[[nodiscard]] float number_of(const Row::Json& value, const Row& row, const std::string& column);

}  // namespace finetune
