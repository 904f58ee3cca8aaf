// SPDX-License-Identifier: MIT
#include <cmath>
#include <nlohmann/json.hpp>

#include "config/reading/aliases.h"
#include "config/reading/text.h"
#include "config/reading/values.h"
#include "finetune/config/dump.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

Json number_schema(const char* type, const Range& range) {
  Json schema = {{"type", type}};
  const auto bound = [&](const char* name, double value) {
    if (!std::isfinite(value)) return;
    if (value == std::floor(value) && std::abs(value) < 1e15) {
      schema[name] = static_cast<int64_t>(value);
    } else {
      schema[name] = value;
    }
  };
  bound(range.above_min ? "exclusiveMinimum" : "minimum", range.min);
  bound(range.below_max ? "exclusiveMaximum" : "maximum", range.max);
  return schema;
}

// Schema of text, or of one of a few words; unrestricted text accepts numbers and booleans too.
Json text_schema(const FieldSpec& spec) {
  if (spec.choices.empty() || spec.path != PathKind::kNone) {
    return {{"type", Json::array({"string", "number", "boolean"})}};
  }
  Json words = Json::array();
  for (const std::string& choice : spec.choices) words.push_back(choice);
  for (const auto& [spelling, meaning] : spec.spellings) {
    if (spelling == "true") words.push_back(true);
    if (spelling == "false") words.push_back(false);
  }
  return {{"enum", words}};
}

struct TypeSchema {
  const FieldSpec& spec;

  Json operator()(bool TrainingArgs::*) const { return {{"type", "boolean"}}; }
  Json operator()(int64_t TrainingArgs::*) const { return number_schema("integer", spec.range); }
  Json operator()(double TrainingArgs::*) const { return number_schema("number", spec.range); }
  Json operator()(std::string TrainingArgs::*) const { return text_schema(spec); }
  template <class T>
  Json operator()(std::optional<T> TrainingArgs::*) const {
    return or_null((*this)(static_cast<T TrainingArgs::*>(nullptr)));
  }
  Json operator()(std::vector<std::string> TrainingArgs::*) const {
    const Json item = text_schema(spec);
    Json forms = Json::array({Json{{"type", "array"}, {"items", item}}, Json{{"type", "null"}}});
    if (!spec.list_only) forms.insert(forms.begin(), item);
    return {{"anyOf", forms}};
  }
  Json operator()(JsonText TrainingArgs::*) const {
    Json types = Json::array({"object", "string", "null"});
    if (spec.listed) types.push_back("array");
    return {{"type", types}};
  }
  Json operator()(const ForeignKey& key) const {
    return std::visit(
        [&]<class T>(const T&) { return (*this)(static_cast<T TrainingArgs::*>(nullptr)); },
        key.initial);
  }

 private:
  static Json or_null(const Json& schema) {
    return {{"anyOf", Json::array({schema, Json{{"type", "null"}}})}};
  }
};

bool has_null_spelling(const FieldSpec& spec) {
  for (const auto& spelling : spec.spellings) {
    if (spelling.first == "null") return true;
  }
  return false;
}

Json schema_of(const Field& field, const TrainingArgs& defaults) {
  Json schema = std::visit(TypeSchema{field.spec}, field.member);
  if (has_null_spelling(field.spec) && !schema.contains("anyOf")) {
    schema = {{"anyOf", Json::array({schema, Json{{"type", "null"}}})}};
  }
  const std::string limits = limits_of(field);
  schema["description"] = field.help + (limits.empty() ? "" : " " + limits);
  schema["default"] = value_of(field, defaults);
  return schema;
}

}  // namespace

std::string json_schema() {
  const TrainingArgs defaults;
  Json properties = Json::object();
  for (const Field& field : all_fields()) properties[field.name] = schema_of(field, defaults);
  for (const Alias& alias : all_aliases()) {
    if (alias.action == Alias::Action::kRefuse) continue;
    Json schema = {{"deprecated", true}};
    schema["description"] = alias.action == Alias::Action::kIgnore
                                ? "No effect: " + std::string(alias.argument) + "."
                            : alias.target.empty() ? std::string(alias.argument) + "."
                            : alias.action == Alias::Action::kOtherName
                                ? "Another name; write " + std::string(alias.target) + "."
                                : "Old name; write " + std::string(alias.target) + ".";
    properties[std::string(alias.name)] = std::move(schema);
  }
  const Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                       {"title", "finetune configuration"},
                       {"type", "object"},
                       {"additionalProperties", false},
                       {"properties", properties}};
  return schema.dump(2) + '\n';
}

}  // namespace finetune
