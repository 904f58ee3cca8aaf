// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "finetune/tokenizer/tokenizer.h"
#include "tokenizer/special_names.h"

// What transformers 5 builds for its own classes, whatever the tokenizer.json beside the vocabulary
// says: their parts as tokenizer.json would spell them, with what tokenizer_config.json sets.
namespace finetune::tokenizer {

enum class TokenizerClass { kOther, kBert, kRoberta, kXlmRoberta, kBigBird };

[[nodiscard]] TokenizerClass class_of(const TokenizerFolder& folder);

// The keys normalizer, pre_tokenizer and decoder. `charsmap` is the Precompiled that the vocabulary
// came with, or null: XLM-RoBERTa keeps it. Requires: not kOther.
[[nodiscard]] nlohmann::ordered_json class_pipeline(TokenizerClass which,
                                                    const TokenizerFolder& folder,
                                                    const nlohmann::ordered_json& charsmap);

// The post_processor; null where the class's tokens are not all there. Requires: not kOther.
[[nodiscard]] nlohmann::ordered_json class_post_processor(TokenizerClass which,
                                                          const TokenizerFolder& folder,
                                                          const SpecialTokens& special);

}  // namespace finetune::tokenizer
