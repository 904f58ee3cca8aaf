// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "tokenizer/byte_bpe.h"
#include "tokenizer/special_names.h"

namespace finetune::tokenizer {

// Parts out of the text of a tokenizer.json; `where` (its path) starts every message. Throws
// Error(kData): what cannot be executed as it says is refused by name.
[[nodiscard]] ByteBpeParts parse_tokenizer_json(const std::string& text, const std::string& where,
                                                TokenizerFolder folder);

// Parts out of vocab.json and merges.txt, put together as RobertaTokenizer does.
[[nodiscard]] ByteBpeParts parse_vocab_and_merges(const std::string& vocab,
                                                  const std::string& merges,
                                                  TokenizerFolder folder);

}  // namespace finetune::tokenizer
