// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace finetune {

// The content of a file's rows: one column of text, or ids.
struct RowSchema {
  bool tokens = false;
  bool labels = false;
  bool masks = false;
  bool bare_lists = false;  // one id may appear without a list
  std::string text_column;

  friend bool operator==(const RowSchema&, const RowSchema&) = default;
};

struct TokenLimits {
  int64_t vocabulary = 0;  // 0: no limit
  int64_t positions = 0;   // 0: no limit
};

struct TokenRow {
  std::vector<int32_t> ids;
  std::vector<int32_t> labels;
  std::vector<uint8_t> mask;
};

// Returns "the columns 'a', 'b'", at most ten of them, or "no columns".
[[nodiscard]] std::string column_names(const nlohmann::ordered_json& row);

// Throws Error(kData) if `id` is not in the vocabulary.
void check_token(int64_t id, const std::string& position, int64_t vocabulary);

// Parses one line as a JSON object. All of these throw Error(kData) naming `position`.
[[nodiscard]] nlohmann::ordered_json parse_row(std::string_view line, const std::string& position);
// The same for an object that may span several lines; `position` names the first.
[[nodiscard]] nlohmann::ordered_json parse_object(std::string_view text,
                                                  const std::string& position);
[[nodiscard]] std::string text_of(nlohmann::ordered_json& row, const RowSchema& schema,
                                  const std::string& position);
[[nodiscard]] TokenRow tokens_of(const nlohmann::ordered_json& row, const RowSchema& schema,
                                 const std::string& position, const TokenLimits& limits);

}  // namespace finetune
