// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/class_pipeline.h"
#include "tokenizer/token_model.h"

// Token models out of their files. Everything throws Error(kData) that starts with `where`.
namespace finetune::tokenizer {

struct ReadModel {
  std::unique_ptr<TokenModel> model;
  std::string continuing_prefix;  // WordPiece: "##"
  bool unigram = false;
  bool takes_bytes = false;  // byte-level BPE
};

// "BPE", "Unigram" or "WordPiece", also where an old file does not say so.
[[nodiscard]] std::string model_type(const nlohmann::ordered_json& model, const std::string& where);

// The `model` of tokenizer.json. transformers' own classes set its options themselves.
// `byte_level`: the pre-tokenizer ends with ByteLevel.
[[nodiscard]] ReadModel read_model(const nlohmann::ordered_json& model, const std::string& where,
                                   TokenizerClass which, const TokenizerFolder& folder,
                                   bool byte_level);

// {"token": id, ...}
[[nodiscard]] std::vector<std::pair<std::string, int32_t>> read_vocabulary(
    const nlohmann::ordered_json& json, const std::string& where);
// merges.txt
[[nodiscard]] std::vector<std::pair<std::string, std::string>> read_merges_txt(
    const std::string& text, const std::string& where);
// vocab.txt: a token a line; of equal ones the last counts.
[[nodiscard]] std::vector<std::pair<std::string, int32_t>> read_vocab_txt(const std::string& text,
                                                                          const std::string& where);

}  // namespace finetune::tokenizer
