// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

// The tokenizer classes of transformers 5.23 and the rules by which AutoTokenizer chooses one.
namespace finetune::tokenizer {

// A class whose pipeline transformers builds itself from the vocabulary in tokenizer.json; kOther
// uses tokenizer.json as it is.
enum class TokenizerClass {
  kOther,
  kBert,
  kMpnet,
  kRoberta,
  kXlmRoberta,
  kBigBird,
  kGpt2,
  kGptNeoX,
  kCohere,
  kQwen2,
  kQwen35,
  kLlama,
  kGemma,
  kDeberta,
  kDebertaV2
};

// `name` is without "Fast". Returns kOther for unsupported and unknown names.
[[nodiscard]] TokenizerClass class_named(std::string_view name);

// Returns the class's type of model in tokenizer.json; empty for kOther.
[[nodiscard]] std::string class_model(TokenizerClass which);

// Whether transformers builds this class's pipeline itself and this version does not.
[[nodiscard]] bool is_unsupported_class(std::string_view name);

// Whether the class returns token types if tokenizer_config.json has no model_input_names.
[[nodiscard]] bool has_token_types(std::string_view name);

// Returns the class that AutoTokenizer uses for a model type if no file names one; empty if none.
[[nodiscard]] std::string registered_class(std::string_view model_type);

// What the files of a folder say about the class.
struct ClassSources {
  std::string named;       // tokenizer_config.json's tokenizer_class, else config.json's; no "Fast"
  std::string model_type;  // config.json's
  bool byte_level = false;   // tokenizer.json has a ByteLevel
  bool custom_code = false;  // auto_map names code for AutoTokenizer
};

// Returns the class that AutoTokenizer uses; empty if the files name none.
[[nodiscard]] std::string resolve_class(const ClassSources& sources);

// Whether AutoTokenizer has no class for these files but the code that auto_map names.
[[nodiscard]] bool needs_custom_code(const ClassSources& sources);

}  // namespace finetune::tokenizer
