// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/tokenizer/train_sentencepiece.h"
#include "tokenizer/training/library_process.h"

namespace finetune::tokenizer {

// The part of train_sentencepiece() that uses the library: reads the files and trains. The library
// exits on some errors, and logs its progress on standard error unless `quiet`.
[[nodiscard]] TrainedSentencePiece train_by_library(const std::vector<std::string>& files,
                                                    const SentencePieceOptions& options, bool quiet,
                                                    const ProcessReports& reports);

// Extracts progress from the library's log.
class TrainingLog {
 public:
  explicit TrainingLog(const SentencePieceOptions& options) : options_(options) {}
  // Calls options.progress if the line contains progress.
  void take(const std::string& line);

 private:
  const SentencePieceOptions& options_;
  double first_size_ = 0;
};

// Converts the library's message about `options` to an error; Error(kConfig) if it is about the
// vocabulary's size.
[[nodiscard]] Error training_error(const std::string& message, const SentencePieceOptions& options);

// Whether the library's normalisation leaves the text unchanged.
[[nodiscard]] bool is_normal(const std::string& text, const std::string& rule);

}  // namespace finetune::tokenizer
