// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "config/reading/node.h"

namespace finetune {

// A character of word processors and web pages in place of one that YAML and the command line read:
// a typographic quote or dash, a no-break space, a full-width colon.
struct Typographic {
  size_t offset = 0;     // in bytes
  std::string bytes{};   // the character
  std::string advice{};  // "“ (U+201C) is a typographic quote; write \""
};

// Returns the first such character from `from` on.
[[nodiscard]] std::optional<Typographic> find_typographic(std::string_view text, size_t from = 0);

// Returns the first one outside of YAML's comments.
[[nodiscard]] std::optional<Typographic> find_typographic_in_yaml(std::string_view text);

// Returns the advice for a key or an unquoted value that such a character is a mistake in: a quote
// or a space at an end, a dash before an option or a number, any in a key. Elsewhere in a value it
// may be meant: "train_file: Märchen – 1.txt".
[[nodiscard]] std::optional<Typographic> find_mistake(const Setting& setting);

// "line 3, column 12" of an offset; columns count characters.
[[nodiscard]] std::string line_and_column(std::string_view text, size_t offset);

}  // namespace finetune
