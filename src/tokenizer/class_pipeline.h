// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "finetune/tokenizer/tokenizer.h"
#include "tokenizer/special_names.h"

// What transformers 5 builds for its own classes, regardless of tokenizer.json: their parts as
// tokenizer.json would spell them, with the settings of tokenizer_config.json.
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

// The keys normalizer, pre_tokenizer and decoder. `charsmap` is the Precompiled that the vocabulary
// came with, or null: XLM-RoBERTa keeps it. Requires: not kOther.
[[nodiscard]] nlohmann::ordered_json class_pipeline(TokenizerClass which,
                                                    const TokenizerFolder& folder,
                                                    const nlohmann::ordered_json& charsmap);

// The post_processor: `given`, the file's, for classes of language models; null where the class's
// tokens are not all there.
[[nodiscard]] nlohmann::ordered_json class_post_processor(TokenizerClass which,
                                                          const TokenizerFolder& folder,
                                                          const SpecialTokens& special,
                                                          const nlohmann::ordered_json& given);

// The kind of model (as tokenizer.json calls it) that the class has; empty for kOther.
[[nodiscard]] std::string class_model(TokenizerClass which);

// The class that transformers' AutoTokenizer uses for a folder whose files name `named` (may be
// empty) and a model of the type `model_type`: it knows better for some types. `byte_level`: the
// tokenizer.json has a ByteLevel, which is never a LlamaTokenizer's.
[[nodiscard]] std::string resolve_class(const std::string& named, const std::string& model_type,
                                        bool byte_level);

}  // namespace finetune::tokenizer
