// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tokenizer/pipeline/pipeline_tokenizer.h"
#include "tokenizer/pipeline/special_names.h"

// Reads the parts of a tokenizer from its files, combined as in transformers' AutoTokenizer: its
// own classes (class_pipeline.h) use the vocabulary, the added tokens and the settings of
// tokenizer_config.json; for other classes tokenizer.json is used as it is.
namespace finetune::tokenizer {

// Reads the parts from the text of a tokenizer.json; `where` (its path) is the prefix of messages.
// Throws Error(kData) naming unsupported parts.
[[nodiscard]] PipelineParts parse_tokenizer_json(const std::string& text, const std::string& where,
                                                 TokenizerFolder folder);

// Reads the parts from vocab.json and merges.txt, combined as in RobertaTokenizer.
[[nodiscard]] PipelineParts parse_vocab_and_merges(const std::string& vocab,
                                                   const std::string& merges,
                                                   TokenizerFolder folder);

// Reads the parts from vocab.txt, combined as in BertTokenizer.
[[nodiscard]] PipelineParts parse_vocab_txt(const std::string& vocab, TokenizerFolder folder);

// Shared by all formats: adds the class's normalizer, pre-tokenizer, decoder, special tokens and
// post-processor to `parts`, which has a model. `charsmap` as in class_pipeline(); `post_processor`
// is the file's, or null.
void complete_class(TokenizerFolder& folder, const nlohmann::ordered_json& charsmap,
                    const std::string& where, PipelineParts& parts,
                    const nlohmann::ordered_json& post_processor);

}  // namespace finetune::tokenizer
