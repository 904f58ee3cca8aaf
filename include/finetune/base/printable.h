// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

// Text from files and the command line in messages: makes output to a terminal bounded and free of
// control characters.
namespace finetune {

// Escapes control characters as \u001b, bidirectional controls and Unicode's line breaks included,
// and bytes that are not UTF-8 as \xff; keeps line feeds, tabs and all other text. log:: does this
// with every message; call it for other output.
[[nodiscard]] std::string printable(std::string_view text);

// As printable(), and escapes line feeds and tabs as \n and \t: for text within a line.
[[nodiscard]] std::string printable_line(std::string_view text);

// Quotes a word of a command for a POSIX shell, where it needs quotes.
[[nodiscard]] std::string shell_word(const std::string& text);

// Returns the program's name for commands that messages suggest, as the user can type it: the word
// that started the program, or "finetune" if the shell finds the same program by that name.
[[nodiscard]] std::string command_name();
// Call once at the start of main(). Child processes inherit the name in FINETUNE_COMMAND, which a
// wrapper of the program may set.
void set_command_name(const char* argv0);

// Returns a text of at most `most` bytes unchanged; of a longer one the first and last `most` / 2
// bytes with "... N bytes left out ..." between them. Never splits a UTF-8 character. Requires:
// most >= 8.
[[nodiscard]] std::string shortened(std::string_view text, size_t most);

// Returns "a, b, c"; of more than `most` + 1 items the first `most`: "a, b and 17 more".
[[nodiscard]] std::string listed(const std::vector<std::string>& items, size_t most = 8,
                                 std::string_view separator = ", ");

}  // namespace finetune
