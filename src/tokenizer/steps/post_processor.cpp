// SPDX-License-Identifier: MIT
#include "tokenizer/steps/post_processor.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tokenizer/unicode/json_fields.h"

namespace finetune::tokenizer {
namespace {

ModelText make_text(std::span<const int32_t> ids, int32_t which) {
  ModelText text;
  text.ids.assign(ids.begin(), ids.end());
  text.token_types.assign(ids.size(), static_cast<uint8_t>(which));
  text.texts.assign(ids.size(), which);
  text.tokens.resize(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) text.tokens[i] = static_cast<int32_t>(i);
  return text;
}

void append_special(ModelText& text, int32_t id, uint8_t token_type) {
  text.ids.push_back(id);
  text.token_types.push_back(token_type);
  text.texts.push_back(ModelText::kSpecial);
  text.tokens.push_back(ModelText::kSpecial);
}

void append(ModelText& text, const ModelText& more) {
  const auto add = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  add(text.ids, more.ids);
  add(text.token_types, more.token_types);
  add(text.texts, more.texts);
  add(text.tokens, more.tokens);
}

// ["</s>", 2]
int32_t read_token_pair(const Json& json, const char* key, const std::string& where) {
  const Json& pair = array_field(json, key, where);
  if (pair.size() != 2) {
    throw Error(ErrorKind::kData, where + ": '" + key + "' must be [token, id]");
  }
  return to_id(pair[1], std::string("'") + key + "'", where);
}

uint8_t read_type(const Json& json, const std::string& where) {
  const Json& type = field(json, "type_id", where);
  if (!type.is_number_integer() || type < 0 || type > 255) {
    throw Error(ErrorKind::kData, where + ": a type_id must be a whole number from 0 to 255");
  }
  return type.get<uint8_t>();
}

}  // namespace

PostProcessor::PostProcessor(const nlohmann::ordered_json& json, const std::string& where) {
  if (!json.is_null()) add(json, where);
}

PostProcessor PostProcessor::roberta(int32_t cls, int32_t sep, Trim trim) {
  PostProcessor processor;
  processor.trims_.push_back(trim);
  processor.steps_.push_back({.kind = Kind::kRoberta, .cls = cls, .sep = sep});
  return processor;
}

PostProcessor PostProcessor::bert(int32_t cls, int32_t sep) {
  PostProcessor processor;
  processor.steps_.push_back({.kind = Kind::kBert, .cls = cls, .sep = sep});
  return processor;
}

void PostProcessor::add(const nlohmann::ordered_json& json, const std::string& where) {
  const std::string type = string_field(json, "type", where);
  if (type == "Sequence") {
    for (const Json& item : array_field(json, "processors", where)) add(item, where);
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    const bool roberta = type == "RobertaProcessing";
    if (roberta && optional_bool(json, "trim_offsets", true, where)) {
      trims_.push_back({optional_bool(json, "add_prefix_space", true, where), !steps_.empty()});
    }
    steps_.push_back({.kind = roberta ? Kind::kRoberta : Kind::kBert,
                      .cls = read_token_pair(json, "cls", where),
                      .sep = read_token_pair(json, "sep", where)});
  } else if (type == "TemplateProcessing") {
    if (!steps_.empty())
      throw unsupported(where, "a TemplateProcessing that follows another processor");
    steps_.push_back({.kind = Kind::kTemplate,
                      .single = read_template(json, "single", where),
                      .pair = read_template(json, "pair", where)});
  } else if (type == "ByteLevel") {
    if (optional_bool(json, "trim_offsets", true, where)) {
      trims_.push_back({optional_bool(json, "add_prefix_space", true, where),
                        !steps_.empty() && steps_.back().kind != Kind::kTemplate});
    }
  } else {
    throw unsupported(where, "the post_processor '" + type + "'");
  }
}

std::vector<PostProcessor::TemplatePiece> PostProcessor::read_template(
    const nlohmann::ordered_json& json, const char* key, const std::string& where) {
  const Json& known = object_field(json, "special_tokens", where);
  std::vector<TemplatePiece> pieces;
  for (const Json& item : array_field(json, key, where)) {
    TemplatePiece piece;
    if (item.is_object() && item.contains("Sequence")) {
      const Json& sequence = object_field(item, "Sequence", where);
      const std::string id = string_field(sequence, "id", where);
      piece.text = id == "A" ? 0 : 1;
      if ((id != "A" && id != "B") || (id == "B" && std::string(key) == "single")) {
        throw unsupported(where, "a template whose '" + std::string(key) + "' has the sequence '" +
                                     id.substr(0, 40) + "'");
      }
      piece.token_type = read_type(sequence, where);
    } else {
      const Json& special = object_field(item, "SpecialToken", where);
      const std::string name = string_field(special, "id", where);
      const Json& ids = array_field(object_field(known, name.c_str(), where), "ids", where);
      for (const Json& id : ids) piece.ids.push_back(to_id(id, "'" + name + "'", where));
      piece.token_type = read_type(special, where);
    }
    pieces.push_back(std::move(piece));
  }
  for (int32_t text = 0; text <= (std::string(key) == "pair" ? 1 : 0); ++text) {
    const auto count = std::count_if(pieces.begin(), pieces.end(),
                                     [&](const TemplatePiece& p) { return p.text == text; });
    if (count > 1 || (count == 0 && std::string(key) == "single")) {
      throw unsupported(where,
                        "a template whose '" + std::string(key) + "' does not have each text once");
    }
  }
  return pieces;
}

std::vector<ModelText> PostProcessor::apply(const Step& step, std::vector<ModelText> parts) {
  std::vector<ModelText> result;
  if (step.kind == Kind::kTemplate) {
    for (const TemplatePiece& piece : parts.size() == 2 ? step.pair : step.single) {
      ModelText part;
      if (piece.text == ModelText::kSpecial) {
        for (const int32_t id : piece.ids) append_special(part, id, piece.token_type);
      } else {
        part = parts[static_cast<size_t>(piece.text)];
        std::fill(part.token_types.begin(), part.token_types.end(), piece.token_type);
      }
      result.push_back(std::move(part));
    }
    return result;
  }
  const bool roberta = step.kind == Kind::kRoberta;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto type = static_cast<uint8_t>(i > 0 && !roberta ? 1 : 0);
    if (roberta) std::fill(parts[i].token_types.begin(), parts[i].token_types.end(), uint8_t{0});
    ModelText part;
    if (i == 0) {
      append_special(part, step.cls, type);
    } else if (roberta) {
      append_special(part, step.sep, type);
    }
    append(part, parts[i]);
    append_special(part, step.sep, type);
    result.push_back(std::move(part));
  }
  return result;
}

ModelText PostProcessor::combine(std::span<const int32_t> first,
                                 std::optional<std::span<const int32_t>> second) const {
  std::vector<ModelText> parts = {make_text(first, 0)};
  if (second) parts.push_back(make_text(*second, 1));
  for (const Step& step : steps_) parts = apply(step, std::move(parts));
  if (parts.empty()) return {};
  ModelText result = std::move(parts.front());
  for (size_t i = 1; i < parts.size(); ++i) append(result, parts[i]);
  return result;
}

int64_t PostProcessor::num_added(bool pair) const {
  const std::span<const int32_t> nothing;
  return static_cast<int64_t>(
      combine(nothing, pair ? std::optional(nothing) : std::nullopt).ids.size());
}

std::vector<int32_t> PostProcessor::added_ids() const {
  const std::span<const int32_t> nothing;
  std::vector<int32_t> ids = combine(nothing, std::nullopt).ids;
  const std::vector<int32_t> more = combine(nothing, nothing).ids;
  ids.insert(ids.end(), more.begin(), more.end());
  return ids;
}

}  // namespace finetune::tokenizer
