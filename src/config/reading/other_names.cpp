// SPDX-License-Identifier: MIT
#include "config/reading/other_names.h"

#include <algorithm>
#include <array>

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

std::optional<std::string> value_of_enum(std::string_view text) {
  // "<IntervalStrategy.STEPS: 'steps'>", as repr() writes it, holds the value.
  if (text.starts_with('<') && text.ends_with("'>")) {
    const size_t quote = text.find(": '");
    if (quote == std::string_view::npos || quote + 5 > text.size()) return std::nullopt;
    return std::string(text.substr(quote + 3, text.size() - quote - 5));
  }
  const size_t point = text.find('.');
  if (point == std::string_view::npos || point == 0) return std::nullopt;
  const std::string_view type = text.substr(0, point);
  const std::string_view member = text.substr(point + 1);
  const auto is_upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  const auto is_letter = [&](char c) { return is_upper(c) || (c >= 'a' && c <= 'z'); };
  const auto is_member = [&](char c) { return is_upper(c) || (c >= '0' && c <= '9') || c == '_'; };
  if (!is_upper(type.front()) || !std::ranges::all_of(type, is_letter)) return std::nullopt;
  if (member.empty() || !std::ranges::all_of(member, is_member)) return std::nullopt;
  // Members of transformers' enumerations whose value is not their name in lower case.
  constexpr std::array<std::array<std::string_view, 2>, 8> kOthers = {
      {{"ADAMW_BNB", "adamw_bnb_8bit"},
       {"LION", "lion_32bit"},
       {"PAGED_ADAMW", "paged_adamw_32bit"},
       {"PAGED_ADEMAMIX", "paged_ademamix_32bit"},
       {"PAGED_LION", "paged_lion_32bit"},
       {"RMSPROP_8BIT", "rmsprop_bnb_8bit"},
       {"RMSPROP_32BIT", "rmsprop_bnb_32bit"},
       {"REDUCE_ON_PLATEAU", "reduce_lr_on_plateau"}}};
  for (const auto& [name, value] : kOthers) {
    if (member == name) return std::string(value);
  }
  return lower_case(std::string(member));
}

std::string explain_other_value(std::string_view key, std::string_view value,
                                const std::vector<std::string>& usable) {
  std::string name = lower_case(std::string(value));
  for (char& c : name) {
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
