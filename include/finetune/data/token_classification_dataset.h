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

// find_columns() (columns.h) finds columns that are not named.
struct TokenClassificationOptions : SampleOptions {
  std::optional<std::string> text_column;   // a list of words in each row
  std::optional<std::string> label_column;  // a list with a label for each word
  LabelMap labels;
  // A word's first token has its label, the others kIgnoredLabel; or, as in run_ner, the same label
  // with I- instead of B- if there is such a label.
  bool label_all_tokens = false;
};

// Sentences of words with a label for each: Example::labels has one for each token.
class TokenClassificationDataset final : public SampleView {
 public:
  static constexpr int32_t kNoWord = -1;  // special tokens

  // Requires: samples with words.
  explicit TokenClassificationDataset(std::shared_ptr<const SequenceDataset> samples);
  explicit TokenClassificationDataset(TokenContent content);

  // For each token of the sample, its word, or kNoWord.
  [[nodiscard]] std::span<const int32_t> words(int64_t index) const { return get(index).words; }
  // Words of the row; words after max_seq_length have no token, nor do words that have none at all.
  [[nodiscard]] int64_t word_count(int64_t index) const { return get(index).word_count; }
};

// As run_ner prepares them. Labels are found as in classification_dataset.h; without
// labels_required rows may lack them and all are kIgnoredLabel.
// Throws as build_classification_dataset does.
[[nodiscard]] std::shared_ptr<const TokenClassificationDataset> build_token_classification_dataset(
    const std::vector<std::string>& files, const Tokenizer& tokenizer,
    const TokenClassificationOptions& options);
// The same samples, or the stream of them that the options ask for.
[[nodiscard]] std::shared_ptr<const SequenceDataset> build_token_classification_samples(
    const std::vector<std::string>& files, const Tokenizer& tokenizer,
    const TokenClassificationOptions& options);

}  // namespace finetune
