// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <istream>
#include <string>

namespace finetune {

// The longest line of text that is read, in bytes.
inline constexpr size_t kLongestTextLine = size_t{16} << 20;

// std::getline() with a bound: replaces `line` and returns true, or returns false at the end.
// Throws Error(kData), which begins with `where` ("line 3"), for a line of more than
// kLongestTextLine bytes, and Interrupted, so that a stream without line ends can be stopped.
[[nodiscard]] bool read_line(std::istream& stream, std::string& line, const std::string& where);

}  // namespace finetune
