// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace finetune::chat {

// Line and column of a template, both from 1; the column counts bytes.
struct Position {
  int32_t line = 1;
  int32_t column = 1;
};

// Throws Error(kData) "WHERE:LINE:COLUMN: PROBLEM".
[[noreturn]] void fail_at(const std::string& where, Position at, const std::string& problem);

struct Token {
  enum class Kind {
    kData,           // text between tags, as it is written
    kBlockBegin,     // {%
    kBlockEnd,       // %}
    kVariableBegin,  // {{
    kVariableEnd,    // }}
    kName,
    kText,  // a string literal, without quotes and escapes
    kInteger,
    kNumber,
    kOperator,
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string text;
  Position at;
};

// Splits a Jinja template into tokens, with trim_blocks and lstrip_blocks as transformers sets
// them; comments are dropped. The last token is kEnd. Throws Error(kData).
[[nodiscard]] std::vector<Token> tokenize(std::string_view text, const std::string& where);

}  // namespace finetune::chat
