// SPDX-License-Identifier: MIT
#include <algorithm>
#include <utility>

#include "config/aliases.h"
#include "config/node.h"
#include "finetune/base/error.h"
#include "finetune/base/utf8.h"
#include "finetune/config/fields.h"

namespace finetune {
namespace {

constexpr const char* kWhere = "command line";

template <class Member>
bool holds(const Field* field) {
  return field != nullptr && std::holds_alternative<Member TrainingArgs::*>(field->member);
}

bool is_option(const std::string& word) { return word.size() > 2 && word.starts_with("--"); }

// A word as it stands on a command line has no quotes left, so it is plain; a list or mapping is
// given as JSON.
Node to_node(const Field* field, const std::vector<std::string>& words) {
  const bool list = holds<std::vector<std::string>>(field);
  if (words.size() == 1) {
    const std::string& word = words.front();
    const bool json =
        (list && word.starts_with('[')) || (holds<JsonText>(field) && word.starts_with('{'));
    if (json) return read_inline_json(word, std::string(kWhere) + ": --" + field->name);
    if (!list || word == "null") return {.kind = Node::Kind::kPlain, .text = word};
  }
  Node node{.kind = Node::Kind::kList};
  for (const std::string& word : words) {
    node.items.push_back({.kind = Node::Kind::kPlain, .text = word});
  }
  return node;
}

// "--no_line_by_line" turns a flag off, as transformers' parser has it.
bool is_negated_flag(std::string_view key) {
  return key.starts_with("no_") && find_field(key) == nullptr && find_alias(key) == nullptr &&
         holds<bool>(find_field(key.substr(3)));
}

}  // namespace

std::vector<Setting> read_overrides(const std::vector<std::string>& words) {
  std::vector<Setting> settings;
  for (size_t i = 0; i < words.size();) {
    const std::string& word = words[i++];
    if (utf8::find_invalid(word) != std::string_view::npos) {
      throw Error(ErrorKind::kConfig, std::string(kWhere) + ": a word is not valid UTF-8");
    }
    if (!is_option(word)) {
      throw Error(ErrorKind::kConfig, std::string(kWhere) + ": '" + word +
                                          "' is not of the form --key value or --key=value");
    }
    const size_t equals = word.find('=');
    std::string key = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    std::replace(key.begin(), key.end(), '-', '_');
    const Field* field = find_field(resolve_name(key));
    std::vector<std::string> values;
    if (equals != std::string::npos) {
      values.push_back(word.substr(equals + 1));
    } else {
      const bool several = holds<std::vector<std::string>>(field);
      while (i < words.size() && !is_option(words[i]) && (several || values.empty())) {
        values.push_back(words[i++]);
      }
    }
    for (const std::string& value : values) {
      if (utf8::find_invalid(value) != std::string_view::npos) {
        throw Error(ErrorKind::kConfig,
                    std::string(kWhere) + ": the value of --" + key + " is not valid UTF-8");
      }
    }
    if (values.empty() && is_negated_flag(key)) {
      key.erase(0, 3);
      values.push_back("false");
    }
    // A key that is unknown is answered as such later; it needs no value for that.
    const bool flag = field == nullptr || holds<bool>(field) || holds<std::optional<bool>>(field) ||
                      find_alias(key) != nullptr;
    if (values.empty() && !flag) {
      throw Error(ErrorKind::kConfig, std::string(kWhere) + ": --" + key + " needs a value");
    }
    if (values.empty()) values.push_back("true");
    settings.push_back({key, kWhere, to_node(field, values)});
  }
  return settings;
}

}  // namespace finetune
