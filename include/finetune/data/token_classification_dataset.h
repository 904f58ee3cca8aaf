// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "finetune/data/labels.h"
#include "finetune/data/rows.h"
#include "finetune/data/token_dataset.h"

namespace finetune {

class Tokenizer;

// Columns that are not named are found by find_columns() (columns.h).
struct TokenClassificationOptions : SampleOptions {
  std::optional<std::string> text_column;   // a list of words in each row
  std::optional<std::string> label_column;  // a list with a label for each word
  LabelMap labels;
  // False: only a word's first token has its label, the others kIgnoredLabel. True: all have it,
  // but as in run_ner the others have I- instead of B- if that label exists.
  bool label_all_tokens = false;
};

// Sentences as labelled words; Example::labels has one label per token.
class TokenClassificationDataset final : public SampleView {
 public:
  static constexpr int32_t kNoWord = -1;  // special tokens

  // Requires: samples with words.
  explicit TokenClassificationDataset(std::shared_ptr<const SequenceDataset> samples);
  explicit TokenClassificationDataset(TokenContent content);

  // Returns the word index of each token of the sample, or kNoWord.
  [[nodiscard]] std::span<const int32_t> words(int64_t index) const { return get(index).words; }
  // Returns the number of words of the row. Words after max_seq_length, or without tokens, have no
  // token.
  [[nodiscard]] int64_t word_count(int64_t index) const { return get(index).word_count; }
};

// Prepares rows like run_ner. Labels are found as in classification_dataset.h; without
// labels_required rows may lack labels, which then are all kIgnoredLabel. Throws as
// build_classification_dataset does.
[[nodiscard]] std::shared_ptr<const TokenClassificationDataset> build_token_classification_dataset(
    const std::vector<std::string>& files, const Tokenizer& tokenizer,
    const TokenClassificationOptions& options);
// The same samples, or a stream of them if the options request it.
[[nodiscard]] std::shared_ptr<const SequenceDataset> build_token_classification_samples(
    const std::vector<std::string>& files, const Tokenizer& tokenizer,
    const TokenClassificationOptions& options);

}  // namespace finetune
