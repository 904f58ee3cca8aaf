// SPDX-License-Identifier: MIT
#include "finetune/config/dump.h"

#include <nlohmann/json.hpp>

#include "config/reading/text.h"
#include "config/reading/values.h"
#include "finetune/base/error.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kColumns = 100;

std::string sentence_of(const Field& field) {
  const std::string limits = limits_of(field);
  return field.help + (limits.empty() ? "" : " " + limits);
}

// Escapes '|', which would end a table cell.
std::string cell(const std::string& text) {
  std::string escaped;
  for (const char c : text) escaped += c == '|' ? std::string("\\|") : std::string(1, c);
  return escaped;
}

}  // namespace

std::string defaults_yaml() {
  std::string text = "# Every key of finetune with its default.\n";
  const TrainingArgs defaults;
  std::string section;
  for (const Field& field : all_fields()) {
    if (field.section != section) {
      section = field.section;
      text += "\n# ---- " + section + " ----\n";
    }
    text += '\n' + wrap(sentence_of(field), "# ", kColumns);
    text += field.name + ": " + to_yaml(field, value_of(field, defaults)) + '\n';
  }
  return text;
}

std::string describe_keys_markdown() {
  std::string text;
  const TrainingArgs defaults;
  std::string section;
  for (const Field& field : all_fields()) {
    if (field.section != section) {
      section = field.section;
      text += (text.empty() ? "" : "\n") + std::string("### ") + section +
              "\n\n| key | default | meaning |\n|---|---|---|\n";
    }
    text += "| `" + field.name + "` | `" + cell(to_yaml(field, value_of(field, defaults))) +
            "` | " + cell(sentence_of(field)) + " |\n";
  }
  return text;
}

std::string keys_help() {
  std::string text;
  const TrainingArgs defaults;
  std::string section;
  for (const Field& field : all_fields()) {
    if (field.section != section) {
      section = field.section;
      text += (text.empty() ? "" : "\n") + section + ":\n";
    }
    text += "  --" + field.name + " <" + type_name(field) + "> (" +
            to_yaml(field, value_of(field, defaults)) + ")\n";
    text += wrap(sentence_of(field), "      ", kColumns);
  }
  return text;
}

std::string dump_resolved(const LoadedConfig& config) {
  const Json values = to_json(config.args);
  std::string text;
  for (const Field& field : all_fields()) {
    text += field.name + ": " + to_yaml(field, values.at(field.name));
    if (config.is_set(field.name)) text += "  # " + config.where(field.name);
    text += '\n';
  }
  return text;
}

}  // namespace finetune
