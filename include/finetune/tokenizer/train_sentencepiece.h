// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace finetune {

// Names and defaults are those of SentencePiece's spm_train unless something is said.
struct SentencePieceOptions {
  enum class Type { kUnigram, kBpe };

  Type type = Type::kUnigram;
  int64_t vocab_size = 8000;  // everything included
  // Each is one token everywhere in a text.
  std::vector<std::string> user_defined_symbols = {};
  // Special tokens. spm_train has none unless told.
  std::vector<std::string> control_symbols = {"[CLS]", "[SEP]", "[MASK]"};
  double character_coverage = 0.9995;  // of the text by characters that get a token; 0.98 to 1
  bool byte_fallback = false;          // all other characters as the bytes of UTF-8
  int64_t max_sentence_length = 4192;  // bytes; longer lines are left out
  int64_t input_sentence_size = 0;     // train on a sample of N lines; 0 for all
  uint64_t seed = 12345678;            // of the sample
  int num_threads = 0;                 // 0: all processors; the result does not depend on it
  std::string normalization_rule_name = "nmt_nfkc";
  bool add_dummy_prefix = true;  // a space in front of each text
  int max_sentencepiece_length = 16;
  bool split_digits = false;
  // Ids; -1 for none, which unk may not be. spm_train has 0 for <unk> and no <pad>; these are the
  // ones that BigBird and XLM-RoBERTa expect.
  int pad_id = 0, bos_id = 1, eos_id = 2, unk_id = 3;
  // Called now and then: "reading" with bytes, then "training".
  std::function<void(const std::string& phase, int64_t done, int64_t total)> progress = {};
};

struct TrainedSentencePiece {
  std::string model;        // serialised, as SentencePiece reads it
  int64_t vocab_size = 0;   // as asked for
  int64_t lines = 0;        // that were trained on
  int64_t other_lines = 0;  // that the sample left out
  int64_t too_long = 0;     // lines beyond max_sentence_length, and the first of them
  std::string first_too_long = {};
  int64_t reserved = 0;  // lines with U+2585, which means unknown while training
};

// Trains a model by SentencePiece's trainer in a separate process, so that its failures do not end
// this one. The same text, options and seed give the same bytes, for any number of threads.
// Throws Error(kConfig) for options that are impossible or clash, among them a vocab_size that the
// text does not allow (with the largest or smallest that works); Error(kData) with file and line
// for text that is missing, empty or not UTF-8; Interrupted when a stop is asked for.
// Requires: no other thread runs.
[[nodiscard]] TrainedSentencePiece train_sentencepiece(const std::vector<std::string>& files,
                                                       const SentencePieceOptions& options);

// spiece.model, spiece.vocab, tokenizer.json and tokenizer_config.json of a trained model. Ids of
// tokenizer.json are those of SentencePiece where a text holds no special token; these become their
// ids, as transformers' tokenizers have it. Throws Error(kData) where the model is none of ours.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> make_sentencepiece_files(
    const std::string& model, std::optional<int64_t> model_max_length);

}  // namespace finetune
