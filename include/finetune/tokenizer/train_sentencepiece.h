// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace finetune {

// Names and defaults are those of SentencePiece's spm_train unless noted otherwise.
struct SentencePieceOptions {
  enum class Type { kUnigram, kBpe };

  Type type = Type::kUnigram;
  int64_t vocab_size = 8000;  // including special tokens and symbols
  // Each of these is always a single token.
  std::vector<std::string> user_defined_symbols = {};
  // Special tokens. spm_train has none by default.
  std::vector<std::string> control_symbols = {"[CLS]", "[SEP]", "[MASK]"};
  double character_coverage = 0.9995;  // share of the text's characters that get a token; 0.98 to 1
  bool byte_fallback = false;          // encode all other characters as UTF-8 bytes
  int64_t max_sentence_length = 4192;  // bytes; longer lines are skipped
  int64_t input_sentence_size = 0;     // train on a sample of N lines; 0 for all
  uint64_t seed = 12345678;            // selects the sample
  int num_threads = 0;                 // 0: all processors; the result does not depend on it
  std::string normalization_rule_name = "nmt_nfkc";
  bool add_dummy_prefix = true;  // prepend a space to each text
  int max_sentencepiece_length = 16;
  bool split_digits = false;
  // Ids; -1: none, which unk must not be. spm_train has 0 for <unk> and no <pad>; these are the ids
  // that BigBird and XLM-RoBERTa expect.
  int pad_id = 0, bos_id = 1, eos_id = 2, unk_id = 3;
  // Called regularly: phase "reading" with bytes, then "training".
  std::function<void(const std::string& phase, int64_t done, int64_t total)> progress = {};
};

struct TrainedSentencePiece {
  std::string model;        // serialised, as SentencePiece reads it
  int64_t vocab_size = 0;   // as requested
  int64_t lines = 0;        // lines used for training
  int64_t other_lines = 0;  // lines outside the sample
  int64_t too_long = 0;     // lines above max_sentence_length; then the first of them
  std::string first_too_long = {};
  int64_t reserved = 0;  // lines with U+2585, which the trainer reserves for unknown characters
};

// Trains a model with SentencePiece's trainer in a separate process, so that a crash there does not
// end this one. The same text, options and seed give the same bytes, for any number of threads.
// Throws Error(kConfig) for impossible or conflicting options, including a vocab_size that the text
// does not allow (with the nearest one that works); Error(kData) with file and line for text that
// is missing, empty or not UTF-8; Interrupted if a stop is requested. Requires: no other thread
// runs.
[[nodiscard]] TrainedSentencePiece train_sentencepiece(const std::vector<std::string>& files,
                                                       const SentencePieceOptions& options);

// Returns spiece.model, spiece.vocab, tokenizer.json and tokenizer_config.json of a trained model.
// tokenizer.json gives SentencePiece's ids, except that special tokens in the text become their
// ids, as in transformers. Throws Error(kData) if `model` was not made by train_sentencepiece().
[[nodiscard]] std::vector<std::pair<std::string, std::string>> make_sentencepiece_files(
    const std::string& model, std::optional<int64_t> model_max_length);

}  // namespace finetune
