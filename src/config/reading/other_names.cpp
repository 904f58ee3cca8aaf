// SPDX-License-Identifier: MIT
#include "config/reading/other_names.h"

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/base/nearest.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

// kOtherNames: other_names.txt, made by src/CMakeLists.txt.
#include "config/other_names.inc"

// A value that people write for a key.
struct OtherValue {
  std::string_view key;
  std::string_view value;    // as people write it, in lower case, with '_' for '-'
  std::string_view meaning;  // ours; empty: none
  std::string_view reason;
};

struct Table {
  std::vector<OtherName> names;
  std::vector<OtherValue> values;
};

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

std::vector<std::string_view> words_in(std::string_view text) {
  std::vector<std::string_view> words;
  while (!(text = trimmed(text)).empty()) {
    words.push_back(text.substr(0, text.find(' ')));
    text.remove_prefix(words.back().size());
  }
  return words;
}

// "KEYS = NAMES | REASON" or "KEY: VALUE = NAMES | REASON".
void add_line(std::string_view line, Table& table) {
  const size_t equals = line.find(" = ");
  FT_CHECK(equals != std::string_view::npos, "a line of other_names.txt has an equals sign");
  const std::string_view left = line.substr(0, equals);
  const std::string_view right = line.substr(equals + 3);
  const size_t bar = right.find(" | ");
  const std::vector<std::string_view> names = words_in(right.substr(0, bar));
  const auto reason = bar == std::string_view::npos ? std::string_view() : right.substr(bar + 3);
  const auto known = [](std::string_view word) { return word == "-" ? std::string_view() : word; };
  if (const size_t colon = left.find(": "); colon != std::string_view::npos) {
    const std::string_view meaning = known(left.substr(colon + 2));
    for (const std::string_view name : names) {
      table.values.push_back({left.substr(0, colon), name, meaning, reason});
    }
    return;
  }
  std::vector<std::string_view> keys;
  if (left != "-") keys = words_in(left);
  for (const std::string_view name : names) table.names.push_back({name, keys, reason});
}

const Table& other_names() {
  static const Table table = [] {
    Table read;
    std::string_view text = kOtherNames;
    while (!text.empty()) {
      const std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(line.size() + 1, text.size()));
      if (!line.empty() && line.front() != '#') add_line(line, read);
    }
    return read;
  }();
  return table;
}

}  // namespace

const std::vector<OtherName>& all_other_names() { return other_names().names; }

std::string explain_other_name(std::string_view name) {
  const auto& names = all_other_names();
  const auto found = std::find_if(names.begin(), names.end(),
                                  [&](const OtherName& other) { return other.name == name; });
  if (found == names.end()) return "";
  const std::string reason(found->reason);
  if (found->keys.empty()) return ": " + reason;
  std::string text;
  for (const std::string_view key : found->keys) {
    text += (text.empty() ? " (did you mean '" : " or '") + std::string(key) + "'";
  }
  return text + "?" + (reason.empty() ? "" : " " + reason) + ")";
}

std::string explain_other_value(std::string_view key, std::string_view value,
                                const std::vector<std::string>& usable) {
  std::string name(value);
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-' || c == ' ') c = '_';
  }
  const std::vector<OtherValue>& values = other_names().values;
  const auto found = std::ranges::find_if(
      values, [&](const OtherValue& other) { return other.key == key && other.value == name; });
  if (found != values.end()) {
    if (found->meaning.empty()) return "; " + std::string(found->reason);
    return " (did you mean '" + std::string(found->meaning) + "'?)";
  }
  const std::string near = did_you_mean(value, usable);
  return near.empty() ? did_you_mean(name, usable) : near;
}

}  // namespace finetune
