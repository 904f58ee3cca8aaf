// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace finetune {

struct TrainVocabularyOptions {
  int64_t vocab_size = 30000;  // including special tokens and the 256 bytes
  int64_t min_frequency = 2;   // pairs below this are not merged
  // Get the first ids, in this order. Must contain the five defaults; more may follow.
  std::vector<std::string> special_tokens = {"<s>", "<pad>", "</s>", "<unk>", "<mask>"};
  bool add_prefix_space = false;
  // Called regularly on the calling thread: "reading" with bytes, "merging" with tokens.
  std::function<void(const std::string& phase, int64_t done, int64_t total)> progress = {};
};

// A byte-level BPE vocabulary, spelled in byte-level characters ("Ġ" for a space).
struct TrainedVocabulary {
  std::vector<std::string> tokens;                          // by id
  std::vector<std::pair<std::string, std::string>> merges;  // by rank
  std::vector<std::string> special_tokens;
  bool add_prefix_space = false;
};

// Learns the same vocabulary, merges and ids as ByteLevelBPETokenizer.train of the tokenizers
// package on the same files. Throws Error(kConfig) for impossible options, Error(kData) with file
// and line for text that is missing, empty or not UTF-8; Interrupted if a stop is requested.
[[nodiscard]] TrainedVocabulary train_byte_level_bpe(const std::vector<std::string>& files,
                                                     const TrainVocabularyOptions& options);

// Returns tokenizer.json and tokenizer_config.json, with the bytes that transformers writes for a
// RobertaTokenizer of this vocabulary. `model_max_length`: the model's maximum length, if known.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> make_tokenizer_files(
    const TrainedVocabulary& vocabulary, std::optional<int64_t> model_max_length);

}  // namespace finetune
