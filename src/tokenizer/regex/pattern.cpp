// SPDX-License-Identifier: MIT
#include "tokenizer/regex/pattern.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "tokenizer/regex/compiled_regex.h"
#include "tokenizer/regex/text_cutter.h"
#include "tokenizer/unicode/json_fields.h"

namespace finetune::tokenizer {

Pattern::Pattern(const nlohmann::ordered_json& json, const std::string& where) {
  if (!json.is_object() || json.size() != 1) {
    throw Error(ErrorKind::kData,
                where + R"(: a pattern must be {"String": "..."} or {"Regex": "..."})");
  }
  if (auto regex = optional_string(json, "Regex", where)) {
    cutter_ = find_cutter(*regex);
    regex_ = std::make_shared<const Regex>(*std::move(regex), where);
  } else {
    literal_ = string_field(json, "String", where);
    if (literal_.empty()) throw unsupported(where, "a pattern that is an empty string");
  }
}

std::vector<Pattern::Match> Pattern::find_replaced(std::string_view text,
                                                   std::string_view content) const {
  std::vector<Match> matches = find_all(text);
  const size_t limit = std::max(kLongestReplaced, 4 * text.size());
  if (!matches.empty() && text.size() + content.size() * matches.size() > limit) {
    throw Error(ErrorKind::kData,
                "a Replace of the tokenizer makes a text longer than 16 MiB; use another "
                "tokenizer");
  }
  return matches;
}

std::vector<Pattern::Match> Pattern::find_all(std::string_view text) const {
  if (regex_) return regex_->find_all(text);
  std::vector<Match> matches;
  for (size_t at = 0; (at = text.find(literal_, at)) != std::string_view::npos;) {
    matches.push_back({at, at + literal_.size()});
    at += literal_.size();
  }
  return matches;
}

}  // namespace finetune::tokenizer
