// SPDX-License-Identifier: MIT
#include "tokenizer/unicode/json_fields.h"

#include <nlohmann/json.hpp>

#include "finetune/base/json_fields.h"
#include "finetune/base/text.h"

namespace finetune::tokenizer {
namespace {

JsonFields fields(const Json& object, const std::string& where) {
  return {object, where, ErrorKind::kData,
          "; the file is damaged or none of the tokenizers package"};
}

}  // namespace

const Json& field(const Json& object, const char* key, const std::string& where) {
  return fields(object, where).at(key);
}

const Json& array_field(const Json& object, const char* key, const std::string& where) {
  return fields(object, where).list(key);
}

const Json& object_field(const Json& object, const char* key, const std::string& where) {
  return fields(object, where).object(key);
}

std::string string_field(const Json& object, const char* key, const std::string& where) {
  return fields(object, where).text(key);
}

std::string short_string_field(const Json& object, const char* key, const std::string& where) {
  std::string text = string_field(object, key, where);
  if (text.size() > kMaxTokenBytes) {
    throw Error(ErrorKind::kData,
                format_text("{}: '{}' is longer than {} bytes", where, key, kMaxTokenBytes));
  }
  return text;
}

bool bool_field(const Json& object, const char* key, const std::string& where) {
  return fields(object, where).flag(key);
}

bool optional_bool(const Json& object, const char* key, bool otherwise, const std::string& where) {
  fields(object, where).read(key, otherwise);
  return otherwise;
}

std::optional<std::string> optional_string(const Json& object, const char* key,
                                           const std::string& where) {
  std::optional<std::string> text;
  fields(object, where).read(key, text);
  return text;
}

int32_t to_id(const Json& value, const std::string& what, const std::string& where) {
  if (!value.is_number_integer() || value < 0 || value >= kMaxVocabulary) {
    throw Error(ErrorKind::kData,
                format_text("{}: the id of {} must be a whole number from 0 to {}", where, what,
                            kMaxVocabulary - 1));
  }
  return value.get<int32_t>();
}

Error unsupported(const std::string& where, const std::string& what) {
  return {ErrorKind::kData,
          where + ": " + what +
              " is not supported; use a model whose tokenizer has the parts of BERT's, RoBERTa's, "
              "XLM-RoBERTa's, DeBERTa-v3's or of a language model's (GPT-2, Llama, Qwen, Gemma)"};
}

}  // namespace finetune::tokenizer
