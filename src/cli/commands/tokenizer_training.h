// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "finetune/tokenizer/train_sentencepiece.h"
#include "finetune/tokenizer/train_vocabulary.h"

namespace finetune::cli {

// The options of `finetune tokenizer train`.
struct TokenizerTraining {
  std::string type = "byte_level_bpe";
  int64_t vocab_size = 0;
  std::string output = {};
  std::vector<std::string> files = {};
  std::optional<int64_t> model_max_length = {};
  bool overwrite = false;
  TrainVocabularyOptions byte_level = {};
  SentencePieceOptions sentencepiece = {};
};

// Adds the options to `app`. Requires: `training` outlives `app`.
void describe_tokenizer_training(CLI::App& app, TokenizerTraining& training);

// Trains, writes the files and returns the exit code. `app` knows which options were given.
int train_tokenizer(const CLI::App& app, TokenizerTraining training);

}  // namespace finetune::cli
