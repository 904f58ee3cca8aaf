// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tokenizer/pipeline_tokenizer.h"
#include "tokenizer/special_names.h"

// Parts of a tokenizer out of its files, put together as transformers' AutoTokenizer does: its own
// classes (class_pipeline.h) take the vocabulary, the added tokens and the settings of
// tokenizer_config.json; for every other class tokenizer.json is executed as it says.
namespace finetune::tokenizer {

// Parts out of the text of a tokenizer.json; `where` (its path) starts every message. Throws
// Error(kData): what cannot be executed as it says is refused by name.
[[nodiscard]] PipelineParts parse_tokenizer_json(const std::string& text, const std::string& where,
                                                 TokenizerFolder folder);

// Parts out of vocab.json and merges.txt, put together as RobertaTokenizer does.
[[nodiscard]] PipelineParts parse_vocab_and_merges(const std::string& vocab,
                                                   const std::string& merges,
                                                   TokenizerFolder folder);

// Parts out of vocab.txt, put together as BertTokenizer does.
[[nodiscard]] PipelineParts parse_vocab_txt(const std::string& vocab, TokenizerFolder folder);

// What every kind of file has in common: `parts.model` of a class gets its normalizer,
// pre-tokenizer, decoder, special tokens and post-processor. `charsmap` as in class_pipeline();
// `post_processor` is the file's, or null.
void complete_class(TokenizerFolder& folder, const nlohmann::ordered_json& charsmap,
                    const std::string& where, PipelineParts& parts,
                    const nlohmann::ordered_json& post_processor);

}  // namespace finetune::tokenizer
