// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "finetune/tokenizer/tokenizer.h"
#include "tokenizer/pipeline/added_tokens.h"

namespace finetune::tokenizer {

// The settings of the vocabulary's folder: tokenizer_config.json, special_tokens_map.json and, for
// the class only, config.json. All may be missing.
struct TokenizerFolder {
  std::string path;
  std::string class_name;    // without "Fast"; empty if unknown
  bool fixed_class = false;  // config.json's model_type has this class, whatever the files name
  // Keys of tokenizer_config.json, if present.
  std::optional<bool> add_prefix_space, trim_offsets;
  std::optional<bool> do_lower_case, strip_accents, tokenize_chinese_chars;
  std::optional<bool> add_bos_token, add_eos_token, legacy, split_by_punct;
  std::vector<std::string> unset;  // names ("pad_token") that tokenizer_config.json sets to null
  // Whether the model takes token types, from model_input_names or the class's default.
  bool token_types = true;
  Tokenizer::Sides sides;
  bool sides_given = false;  // false: tokenizer.json may specify them
  // Special tokens by name ("mask_token"), then further ones (""), in transformers' order.
  std::vector<std::pair<std::string, AddedToken>> named;
  // Tokens of tokenizer_config.json's added_tokens_decoder, by id.
  std::vector<AddedToken> added_tokens;
  // Existing tokenizer_config.json and special_tokens_map.json, unchanged.
  std::vector<std::pair<std::string, std::string>> files;
};

// Throws Error(kData) for damaged files and, by name, for tokenizers that need an external
// analyser.
[[nodiscard]] TokenizerFolder read_tokenizer_folder(const std::string& path);

// Adds the default names of transformers' class for tokens that the files do not name;
// RobertaTokenizer's for unknown classes.
void add_class_names(TokenizerFolder& folder);

// Sets the member of `tokens` named `name` ("mask_token"); returns false if there is none.
bool set_special_token(SpecialTokens& tokens, const std::string& name,
                       const SpecialTokens::Token& token);

}  // namespace finetune::tokenizer
