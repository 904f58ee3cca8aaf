// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "tokenizer/pipeline/pipeline_tokenizer.h"
#include "tokenizer/pipeline/special_names.h"

namespace finetune::tokenizer {

// Reads the parts from a SentencePiece model, combined as in transformers' XLMRobertaTokenizer,
// BigBirdTokenizer and DebertaV2Tokenizer. `model` is the content of the file `file_name` in the
// folder. Throws Error(kData). Requires: the folder's class is one of the three.
[[nodiscard]] PipelineParts parse_sentencepiece_model(std::string model,
                                                      const std::string& file_name,
                                                      TokenizerFolder folder);

// Returns the normalizer of tokenizer.json for a model's rules; null if there are none.
[[nodiscard]] nlohmann::ordered_json charsmap_json(std::string_view charsmap);

}  // namespace finetune::tokenizer
