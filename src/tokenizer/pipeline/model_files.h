// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/models/token_model.h"
#include "tokenizer/pipeline/class_pipeline.h"

// Reads token models from files. Everything throws Error(kData) that starts with `where`.
namespace finetune::tokenizer {

struct ReadModel {
  std::unique_ptr<TokenModel> model;
  std::string continuing_prefix;  // WordPiece: "##"
  bool unigram = false;
  bool takes_bytes = false;  // byte-level BPE
};

// Returns "BPE", "Unigram" or "WordPiece", even for old files without a type.
[[nodiscard]] std::string model_type(const nlohmann::ordered_json& model, const std::string& where);

// Reads the `model` of tokenizer.json; for transformers' own classes, the class sets its options.
// `byte_level`: the pre-tokenizer ends with ByteLevel.
[[nodiscard]] ReadModel read_model(const nlohmann::ordered_json& model, const std::string& where,
                                   TokenizerClass which, const TokenizerFolder& folder,
                                   bool byte_level);

// Reads {"token": id, ...}.
[[nodiscard]] std::vector<std::pair<std::string, int32_t>> read_vocabulary(
    const nlohmann::ordered_json& json, const std::string& where);
// Reads merges.txt.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> read_merges_txt(
    const std::string& text, const std::string& where);
// Reads vocab.txt: one token per line; of equal ones the last one wins.
[[nodiscard]] std::vector<std::pair<std::string, int32_t>> read_vocab_txt(const std::string& text,
                                                                          const std::string& where);

}  // namespace finetune::tokenizer
