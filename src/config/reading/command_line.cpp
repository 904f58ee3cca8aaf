// SPDX-License-Identifier: MIT
#include <algorithm>
#include <utility>

#include "config/reading/aliases.h"
#include "config/reading/node.h"
#include "config/reading/scalars.h"
#include "config/reading/typography.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/utf8.h"
#include "finetune/config/fields.h"
#include "finetune/config/load.h"

namespace finetune {
namespace {

constexpr const char* kWhere = "command line";

template <class T>
bool is_known(const Field* field) {
  return field != nullptr && holds<T>(*field);
}

bool is_option(const std::string& word) { return word.size() > 2 && word.starts_with("--"); }

// The shell has removed quotes, so a word is plain text; lists and mappings are JSON.
Node to_node(const Field* field, const std::vector<std::string>& words) {
  const bool list = is_known<std::vector<std::string>>(field);
  if (words.size() == 1) {
    const std::string& word = words.front();
    const bool names_sets = list && field->name == "train_file" && word.starts_with("{\"");
    const bool json = (list && word.starts_with('[')) || names_sets ||
                      (is_known<JsonText>(field) &&
                       (word.starts_with('{') || (field->spec.listed && word.starts_with('['))));
    if (json) return read_inline_json(word, std::string(kWhere) + ": --" + field->name);
    if (!list || word == "null") return {.kind = Node::Kind::kPlain, .text = word};
  }
  Node node{.kind = Node::Kind::kList};
  for (const std::string& word : words) {
    node.items.push_back({.kind = Node::Kind::kPlain, .text = word});
  }
  return node;
}

// Whether the key turns a flag off, as in transformers' parser: "--no_line_by_line".
bool is_negated_flag(std::string_view key) {
  return key.starts_with("no_") && find_field(key) == nullptr && find_alias(key) == nullptr &&
         is_known<bool>(find_field(key.substr(3)));
}

// Converts "--some-key=value" to "some_key".
std::string key_of(const std::string& word) {
  const size_t equals = word.find('=');
  std::string key = word.substr(2, equals == std::string::npos ? equals : equals - 2);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

// Whether a key needs no value. Unknown keys are reported later.
bool may_be_flag(const std::string& key, const Field* field) {
  if (field == nullptr || find_alias(key) != nullptr) return true;
  const auto is_true = [](const auto& spelling) { return spelling.first == "true"; };
  return is_known<bool>(field) || is_known<std::optional<bool>>(field) ||
         std::ranges::any_of(field->spec.spellings, is_true);
}

bool is_flag_value(const std::string& word) {
  const Node node{.kind = Node::Kind::kPlain, .text = word};
  return parse_bool(node).value || is_null(node);
}

bool is_yaml(const std::string& word) { return word.ends_with(".yaml") || word.ends_with(".yml"); }

bool looks_like_config(const std::string& word) {
  return is_yaml(word) || word.ends_with(".json") || FileSystem::local().exists(word);
}

// Returns how many of the words after the option words[i] are its values. `list_ends_in_file`: the
// last value of a list is the configuration file if it looks like one.
size_t count_values(const std::vector<std::string>& words, size_t i, bool list_ends_in_file) {
  if (words[i].find('=') != std::string::npos) return 0;
  const std::string key = key_of(words[i]);
  const Field* field = find_field(resolve_name(key));
  const bool several = is_known<std::vector<std::string>>(field);
  size_t count = 0;
  while (i + 1 + count < words.size() && !is_option(words[i + 1 + count]) &&
         (several || count == 0)) {
    ++count;
  }
  if (count == 0) return count;
  const std::string& last = words[i + count];
  if (several) return list_ends_in_file && count > 1 && is_yaml(last) ? count - 1 : count;
  const bool is_flag = may_be_flag(key, field) || is_negated_flag(key);
  return is_flag && !is_flag_value(last) && looks_like_config(last) ? 0 : count;
}

}  // namespace

ConfigWords split_config_words(const std::vector<std::string>& words) {
  const auto find_path = [&](bool list_ends_in_file) {
    for (size_t i = 0; i < words.size();) {
      if (!is_option(words[i])) return i;
      i += 1 + count_values(words, i, list_ends_in_file);
    }
    return words.size();
  };
  size_t position = find_path(false);
  if (position == words.size()) position = find_path(true);
  ConfigWords result;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i == position) {
      result.path = words[i];
    } else {
      result.overrides.push_back(words[i]);
    }
  }
  return result;
}

std::vector<Setting> read_overrides(const std::vector<std::string>& words) {
  std::vector<Setting> settings;
  for (size_t i = 0; i < words.size();) {
    const std::string& word = words[i++];
    if (utf8::find_invalid(word) != std::string_view::npos) {
      throw Error(ErrorKind::kConfig, std::string(kWhere) + ": a word is not valid UTF-8");
    }
    if (!is_option(word)) {
      const auto found = find_typographic(word);
      throw Error(ErrorKind::kConfig, std::string(kWhere) + ": '" + word +
                                          "' is not of the form --key value or --key=value" +
                                          (found ? "; " + found->advice : ""));
    }
    const size_t equals = word.find('=');
    std::string key = key_of(word);
    const Field* field = find_field(resolve_name(key));
    std::vector<std::string> values;
    if (equals != std::string::npos) {
      values.push_back(word.substr(equals + 1));
    } else {
      const bool several = is_known<std::vector<std::string>>(field);
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
    if (values.empty() && !may_be_flag(key, field)) {
      throw Error(ErrorKind::kConfig, std::string(kWhere) + ": --" + key + " needs a value");
    }
    if (values.empty()) values.push_back("true");
    settings.push_back({key, kWhere, to_node(field, values)});
  }
  return settings;
}

}  // namespace finetune
