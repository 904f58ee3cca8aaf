// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "finetune/data/batch.h"
#include "finetune/model/model_config.h"
#include "finetune/tokenizer/tokenizer.h"

namespace finetune {

// The longest sequence in tokens that tokenizer_config.json allows; nullopt: any.
[[nodiscard]] std::optional<int64_t> model_max_length(const Tokenizer& tokenizer);

// Tokenizes texts for a model. `where` starts the messages.
class TextEncoder {
 public:
  // Throws Error(kData) if the folder has no usable tokenizer.
  TextEncoder(const std::string& folder, const ModelConfig& config);

  [[nodiscard]] const Tokenizer& tokenizer() const { return *tokenizer_; }
  // Returns the longest sequence in tokens that positions and the tokenizer's model_max_length
  // allow.
  [[nodiscard]] int64_t limit() const { return limit_; }

  // Throw Error(kData) for text that is not UTF-8 and for ids outside the model's vocabulary.
  [[nodiscard]] std::vector<int32_t> ids(const std::string& text, const std::string& where) const;
  [[nodiscard]] Tokens tokens(const std::string& text, const std::string& where) const;
  // Returns the tokens of one word of a text that is given as words, with their ranges in the word.
  [[nodiscard]] Tokens word(const std::string& word, const std::string& where) const;

  // Throws Error(kData) for ids outside the model's vocabulary.
  void check(std::span<const int32_t> ids, const std::string& where) const;

  // Truncates the tokens of one text to what the model accepts.
  [[nodiscard]] std::span<const int32_t> cut(std::span<const int32_t> ids,
                                             const std::string& where);
  // Joins two texts with special tokens; if the result is too long, truncates the longer text
  // first.
  [[nodiscard]] ModelText pair(std::span<const int32_t> first, std::span<const int32_t> second,
                               const std::string& where);

 private:
  void check(const std::string& text, const std::string& where) const;
  [[nodiscard]] std::span<const int32_t> keep(std::span<const int32_t> ids, int64_t count) const;
  void warn_of_length(int64_t tokens, const std::string& where);

  std::shared_ptr<const Tokenizer> tokenizer_;
  int64_t vocabulary_;
  int64_t limit_;
  bool warned_ = false;
};

// Pads sequences on the right, so that no answer depends on the other sequences.
[[nodiscard]] Batch make_batch(std::span<const ModelText> rows, int64_t pad_id);

}  // namespace finetune
