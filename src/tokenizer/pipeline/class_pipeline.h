// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "finetune/tokenizer/tokenizer.h"
#include "tokenizer/pipeline/special_names.h"

// The pipelines that transformers 5 builds for its own classes, ignoring those in tokenizer.json:
// their parts in the format of tokenizer.json, with the settings of tokenizer_config.json.
namespace finetune::tokenizer {

enum class TokenizerClass {
  kOther,
  kBert,
  kRoberta,
  kXlmRoberta,
  kBigBird,
  kGpt2,
  kQwen2,
  kLlama,
  kGemma,
  kDebertaV2
};

[[nodiscard]] TokenizerClass class_of(const TokenizerFolder& folder);

// Returns the keys normalizer, pre_tokenizer and decoder. `charsmap` is the vocabulary's
// Precompiled normalizer, which XLM-RoBERTa keeps, or null. Requires: not kOther.
[[nodiscard]] nlohmann::ordered_json class_pipeline(TokenizerClass which,
                                                    const TokenizerFolder& folder,
                                                    const nlohmann::ordered_json& charsmap);

// Returns the post_processor. For classes of causal models this is `given`, the file's. Null if
// some of the class's special tokens are missing.
[[nodiscard]] nlohmann::ordered_json class_post_processor(TokenizerClass which,
                                                          const TokenizerFolder& folder,
                                                          const SpecialTokens& special,
                                                          const nlohmann::ordered_json& given);

// Returns the class's type of model in tokenizer.json; empty for kOther.
[[nodiscard]] std::string class_model(TokenizerClass which);

// Returns the class that transformers' AutoTokenizer uses for a folder whose files name the class
// `named` (may be empty) and the model type `model_type`, which for some types overrides the name.
// `byte_level`: tokenizer.json has a ByteLevel, which a LlamaTokenizer never has.
[[nodiscard]] std::string resolve_class(const std::string& named, const std::string& model_type,
                                        bool byte_level);

}  // namespace finetune::tokenizer
