// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>
#include <vector>

#include "tokenizer/unicode/normalized_text.h"

namespace finetune::tokenizer {

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

// Returns the changes that convert `text` to a normalisation form, with the Unicode tables of the
// tokenizers package (version 9). Requires: well-formed UTF-8.
[[nodiscard]] std::vector<CharChange> normalization_changes(std::string_view text,
                                                            UnicodeForm form);

// Returns true only if NFC leaves the text unchanged; may return false for such a text.
[[nodiscard]] bool is_surely_nfc(std::string_view text);

}  // namespace finetune::tokenizer
