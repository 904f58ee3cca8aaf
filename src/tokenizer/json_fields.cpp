// SPDX-License-Identifier: MIT
#include "tokenizer/json_fields.h"

#include <nlohmann/json.hpp>

namespace finetune::tokenizer {
namespace {

Error wrong_type(const std::string& where, const char* key, const char* expected,
                 const Json& value) {
  return {ErrorKind::kData, where + ": '" + key + "' must be " + expected + ", not " +
                                std::string(value.type_name()) + "; the file is damaged"};
}

const Json* find(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

}  // namespace

const Json& field(const Json& object, const char* key, const std::string& where) {
  const Json* value = find(object, key);
  if (value == nullptr) {
    throw Error(ErrorKind::kData, where + ": '" + key +
                                      "' is missing; the file is damaged or not "
                                      "one of the tokenizers package");
  }
  return *value;
}

const Json& array_field(const Json& object, const char* key, const std::string& where) {
  const Json& value = field(object, key, where);
  if (!value.is_array()) throw wrong_type(where, key, "a list", value);
  return value;
}

const Json& object_field(const Json& object, const char* key, const std::string& where) {
  const Json& value = field(object, key, where);
  if (!value.is_object()) throw wrong_type(where, key, "an object", value);
  return value;
}

std::string string_field(const Json& object, const char* key, const std::string& where) {
  const Json& value = field(object, key, where);
  if (!value.is_string()) throw wrong_type(where, key, "a string", value);
  return value.get<std::string>();
}

std::string short_string_field(const Json& object, const char* key, const std::string& where) {
  std::string text = string_field(object, key, where);
  if (text.size() > kMaxTokenBytes) {
    throw Error(ErrorKind::kData, where + ": '" + key + "' is longer than " +
                                      std::to_string(kMaxTokenBytes) + " bytes");
  }
  return text;
}

bool bool_field(const Json& object, const char* key, const std::string& where) {
  const Json& value = field(object, key, where);
  if (!value.is_boolean()) throw wrong_type(where, key, "true or false", value);
  return value.get<bool>();
}

bool optional_bool(const Json& object, const char* key, bool otherwise, const std::string& where) {
  const Json* value = find(object, key);
  return value == nullptr || value->is_null() ? otherwise : bool_field(object, key, where);
}

std::optional<std::string> optional_string(const Json& object, const char* key,
                                           const std::string& where) {
  const Json* value = find(object, key);
  if (value == nullptr || value->is_null()) return std::nullopt;
  return string_field(object, key, where);
}

int32_t to_id(const Json& value, const std::string& what, const std::string& where) {
  if (!value.is_number_integer() || value < 0 || value >= kMaxVocabulary) {
    throw Error(ErrorKind::kData, where + ": the id of " + what +
                                      " must be a whole number from 0 to " +
                                      std::to_string(kMaxVocabulary - 1));
  }
  return value.get<int32_t>();
}

Error unsupported(const std::string& where, const std::string& what) {
  return {ErrorKind::kData,
          where + ": " + what +
              " is not supported; the tokenizers of BERT, RoBERTa, XLM-RoBERTa and BigBird are"};
}

}  // namespace finetune::tokenizer
