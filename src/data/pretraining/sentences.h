// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace finetune {

// Splits a line after each delimiter and the closing quotes and brackets that follow it. An ASCII
// delimiter counts only before white space or the end of the line, so that "3.14" is not split. The
// parts cover the line, except parts that are only white space. Requires: valid UTF-8.
[[nodiscard]] std::vector<std::string_view> split_sentences(
    std::string_view line, const std::vector<std::string>& delimiters);

}  // namespace finetune
