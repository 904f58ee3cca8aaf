// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "finetune/tokenizer/tokenizer.h"
#include "tokenizer/pipeline/special_names.h"
#include "tokenizer/pipeline/transformers_classes.h"

// The pipelines that transformers 5 builds for its own classes, ignoring those in tokenizer.json:
// their parts in the format of tokenizer.json, with the settings of tokenizer_config.json.
namespace finetune::tokenizer {

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

}  // namespace finetune::tokenizer
