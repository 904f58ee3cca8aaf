// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "finetune/base/error.h"

// Typed reading of one JSON object: every function throws Error(kData) that starts with `where` and
// names the key. The optional_ forms treat an absent key and null as unset.
namespace finetune::tokenizer {

using Json = nlohmann::ordered_json;

[[nodiscard]] const Json& field(const Json& object, const char* key, const std::string& where);
[[nodiscard]] const Json& array_field(const Json& object, const char* key,
                                      const std::string& where);
[[nodiscard]] const Json& object_field(const Json& object, const char* key,
                                       const std::string& where);
[[nodiscard]] std::string string_field(const Json& object, const char* key,
                                       const std::string& where);
// Limited to kMaxTokenBytes.
[[nodiscard]] std::string short_string_field(const Json& object, const char* key,
                                             const std::string& where);
[[nodiscard]] bool bool_field(const Json& object, const char* key, const std::string& where);
[[nodiscard]] bool optional_bool(const Json& object, const char* key, bool otherwise,
                                 const std::string& where);
[[nodiscard]] std::optional<std::string> optional_string(const Json& object, const char* key,
                                                         const std::string& where);
// A token id: 0 ... kMaxVocabulary - 1.
[[nodiscard]] int32_t to_id(const Json& value, const std::string& what, const std::string& where);

inline constexpr int64_t kMaxVocabulary = 4'000'000;
inline constexpr size_t kMaxTokenBytes = size_t{64} << 10;

// Returns the error "WHERE: WHAT is not supported; ..."
[[nodiscard]] Error unsupported(const std::string& where, const std::string& what);

}  // namespace finetune::tokenizer
