// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/tokenizer/train_sentencepiece.h"
#include "tokenizer/library_process.h"

namespace finetune::tokenizer {

// The part of train_sentencepiece() that sees the library: reads the files and trains. The library
// ends the process at some mistakes, and says on standard error how far it is unless `quiet`.
[[nodiscard]] TrainedSentencePiece train_by_library(const std::vector<std::string>& files,
                                                    const SentencePieceOptions& options, bool quiet,
                                                    const ProcessReports& reports);

// How far a line of the library's log says that it is.
class TrainingLog {
 public:
  explicit TrainingLog(const SentencePieceOptions& options) : options_(options) {}
  // Calls options.progress where the line says so.
  void take(const std::string& line);

 private:
  const SentencePieceOptions& options_;
  double first_size_ = 0;
};

// The library's message about `options` in our words; as Error(kConfig) where it is about the
// vocabulary's size.
[[nodiscard]] Error training_error(const std::string& message, const SentencePieceOptions& options);

// Whether the library normalises each of the texts to itself.
[[nodiscard]] bool is_normal(const std::string& text, const std::string& rule);

}  // namespace finetune::tokenizer
