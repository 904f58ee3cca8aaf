// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace finetune {

// Cuts a line behind each delimiter, and behind quotes and brackets that close right after it. A
// delimiter of ASCII characters counts only where white space or the line's end follows, so that
// "3.14" stays whole. The parts together are the line; those that are white space are left out.
// Requires: well-formed UTF-8.
[[nodiscard]] std::vector<std::string_view> split_sentences(
    std::string_view line, const std::vector<std::string>& delimiters);

}  // namespace finetune
