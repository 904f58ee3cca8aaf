// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

// Bytes of rows that are no text. All checks throw Error(kData) that begins with `position`,
// "file:line", and names the byte or column.
namespace finetune {

// Returns the offset of the first escape at or after `from` that is a lone surrogate, as Python's
// json.dumps writes it; npos if there is none.
[[nodiscard]] size_t find_lone_surrogate(std::string_view json, size_t from = 0);
// Replaces each of them by U+FFFD.
[[nodiscard]] std::string replace_lone_surrogates(std::string json);
// Like check_utf8() for a row that arrow_script.h wrote: names the column.
void check_arrow_text(std::string_view text, const std::string& position);

// Refuses text that is not UTF-8.
void check_utf8(std::string_view text, const std::string& position);
// Refuses JSON with a lone surrogate.
void check_surrogates(std::string_view json, const std::string& position);

}  // namespace finetune
