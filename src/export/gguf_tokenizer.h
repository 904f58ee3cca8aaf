// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "export/gguf_file.h"
#include "finetune/export/merged_model.h"

namespace finetune {

// Adds the tokenizer of a model's folder as llama.cpp's converter writes it: byte-level BPE as
// "gpt2", SentencePiece's BPE with byte fallback as "llama" (scores in the order of the merges).
// Tokens that the vocabulary of the model has beyond the tokenizer's are added as unused. Throws
// Error(kData) for a tokenizer that llama.cpp would read otherwise: a wrong name of its
// pre-tokenizer gives other ids without a message.
void add_tokenizer(GgufMetadata& metadata, const MergedModel& model);

// What generation_config.json says ends a text.
[[nodiscard]] std::vector<int64_t> end_token_ids(const MergedModel& model);

}  // namespace finetune
