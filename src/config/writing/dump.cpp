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

// The texts of all keys with their defaults, each section's head before the first.
template <class HeadText, class KeyText>
std::string by_section(const HeadText& head_text, const KeyText& key_text) {
  std::string text;
  const TrainingArgs defaults;
  std::string section;
  for (const Field& field : all_fields()) {
    if (field.section != section) text += head_text(section = field.section);
    text += key_text(field, to_yaml(field, value_of(field, defaults)));
  }
  return text;
}

}  // namespace

std::string defaults_yaml() {
  return "# Every key of finetune with its default.\n" +
         by_section([](const std::string& name) { return "\n# ---- " + name + " ----\n"; },
                    [](const Field& field, const std::string& value) {
                      return '\n' + wrap(sentence_of(field), "# ", kColumns) + field.name + ": " +
                             value + '\n';
                    });
}

std::string describe_keys_markdown() {
  const std::string text = by_section(
      [](const std::string& name) {
        return "\n### " + name + "\n\n| key | default | meaning |\n|---|---|---|\n";
      },
      [](const Field& field, const std::string& value) {
        return "| <a id=\"" + field.name + "\"></a>`" + field.name + "` | `" + cell(value) +
               "` | " + cell(sentence_of(field)) + " |\n";
      });
  return text.substr(1);
}

std::string keys_help() {
  const std::string text = by_section([](const std::string& name) { return '\n' + name + ":\n"; },
                                      [](const Field& field, const std::string& value) {
                                        return "  --" + field.name + " <" + type_name(field) +
                                               "> (" + value + ")\n" +
                                               wrap(sentence_of(field), "      ", kColumns);
                                      });
  return text.substr(1);
}

}  // namespace finetune
