// SPDX-License-Identifier: MIT
#include "finetune/data/token_classification_dataset.h"

#include <utility>

#include "data/columns/label_values.h"
#include "data/columns/row_columns.h"
#include "data/samples/sample_building.h"
#include "finetune/base/error.h"
#include "finetune/data/batch.h"

namespace finetune {
namespace {

using Json = Row::Json;

// Returns for each label the label of a word's further tokens: I-x for B-x if I-x exists.
std::vector<int32_t> inside_labels(const LabelMap& labels) {
  std::vector<int32_t> inside;
  for (int64_t number = 0; number < labels.size(); ++number) {
    std::string name = labels.name(number);
    int64_t other = number;
    if (name.starts_with("B-")) {
      for (size_t at = 0; (at = name.find("B-", at)) != std::string::npos; at += 2) name[at] = 'I';
      other = labels.find(name).value_or(number);
    }
    inside.push_back(static_cast<int32_t>(other));
  }
  return inside;
}

class TokenLabelEncoder {
 public:
  TokenLabelEncoder(const Tokenizer& tokenizer, const TokenClassificationOptions& options,
                    ColumnNames columns)
      : tokenizer_(tokenizer),
        options_(options),
        columns_(std::move(columns)),
        maker_(tokenizer, options, false),
        inside_(inside_labels(options.labels)) {}

  [[nodiscard]] TokenContent encode(const RowBlock& block) const {
    TokenContent content;
    for (const RowBlock::Row& position : block.rows) add(content, Row(block, position));
    return content;
  }

 private:
  void add(TokenContent& content, const Row& row) const {
    const std::vector<std::string> words = row.texts(*columns_.text_column);
    std::vector<int32_t> ids;
    std::vector<int32_t> word_of_id;
    for (size_t word = 0; word < words.size(); ++word) {
      const std::vector<int32_t> more = tokenizer_.encode_word(words[word]);
      ids.insert(ids.end(), more.begin(), more.end());
      word_of_id.insert(word_of_id.end(), more.size(), static_cast<int32_t>(word));
    }
    const ModelText text = maker_.make(ids);
    maker_.add(content, text, row.position());
    content.word_counts.push_back(static_cast<int64_t>(words.size()));
    const std::vector<int32_t> labels = labels_of(row, words.size());
    // With truncation on the left, the first kept token is not the text's first.
    const size_t kept =
        text.ids.size() - static_cast<size_t>(tokenizer_.num_special_tokens_to_add());
    const size_t skipped = tokenizer_.sides().truncate_left ? ids.size() - kept : 0;
    int32_t before = TokenClassificationDataset::kNoWord;
    for (const int32_t token : text.tokens) {
      const int32_t word = token == ModelText::kSpecial
                               ? TokenClassificationDataset::kNoWord
                               : word_of_id[skipped + static_cast<size_t>(token)];
      content.words.push_back(word);
      content.labels.push_back(label_of(word, before, labels));
      before = word;
    }
  }

  [[nodiscard]] std::vector<int32_t> labels_of(const Row& row, size_t words) const {
    const std::optional<std::string>& labelled = columns_.label_column;
    const bool known = labelled && (options_.labels_required || row.has(*labelled));
    if (!known) return {};
    const std::string& column = *labelled;
    std::vector<int32_t> labels;
    for (const Json& value : row.list(column)) {
      labels.push_back(static_cast<int32_t>(label_number(options_.labels, value, row, column)));
    }
    if (labels.size() != words) {
      row.fail("column '" + column + "' holds " + std::to_string(labels.size()) +
               " labels for the " + std::to_string(words) + " words of column '" +
               *columns_.text_column + "'; there must be one for each word");
    }
    return labels;
  }

  [[nodiscard]] int32_t label_of(int32_t word, int32_t before,
                                 const std::vector<int32_t>& labels) const {
    constexpr auto kNoTarget = static_cast<int32_t>(kIgnoredLabel);
    if (word == TokenClassificationDataset::kNoWord || labels.empty()) return kNoTarget;
    const int32_t label = labels[static_cast<size_t>(word)];
    if (word != before || label == kNoTarget) return label;
    return options_.label_all_tokens ? inside_[static_cast<size_t>(label)] : kNoTarget;
  }

  const Tokenizer& tokenizer_;
  TokenClassificationOptions options_;
  ColumnNames columns_;
  SequenceMaker maker_;
  std::vector<int32_t> inside_;
};

}  // namespace

TokenClassificationDataset::TokenClassificationDataset(
    std::shared_ptr<const SequenceDataset> samples)
    : SampleView(std::move(samples)) {}

TokenClassificationDataset::TokenClassificationDataset(TokenContent content)
    : TokenClassificationDataset(std::make_shared<const TokenDataset>(std::move(content))) {}

std::shared_ptr<const SequenceDataset> build_token_classification_samples(
    const std::vector<std::string>& files, const Tokenizer& tokenizer,
    const TokenClassificationOptions& options) {
  FT_CHECK(!options.labels.empty(), "token classification needs labels");
  check_max_samples(options);
  const ColumnNames columns =
      find_columns(
          first_row(files, options),
          {.task = RowTask::kTokenClassification,
           .named = {.text_column = options.text_column, .label_column = options.label_column},
           .labels = options.labels_required ? LabelUse::kRequired : LabelUse::kOptional})
          .names;
  const auto encoder = std::make_shared<const TokenLabelEncoder>(tokenizer, options, columns);
  Json key = cache_options(options, "token classification");
  key["columns"] = {columns.text_column.value_or(""), columns.label_column.value_or("")};
  key["labels"] = options.labels.names();
  key["label_all_tokens"] = options.label_all_tokens;
  return build_samples(
      {.files = files,
       .tokenizer = tokenizer,
       .cache_options = std::move(key),
       .limits = {.labels = options.labels.size()},
       .encode = [encoder](const RowBlock& block) { return encoder->encode(block); }},
      options);
}

std::shared_ptr<const TokenClassificationDataset> build_token_classification_dataset(
    const std::vector<std::string>& files, const Tokenizer& tokenizer,
    const TokenClassificationOptions& options) {
  return std::make_shared<const TokenClassificationDataset>(
      build_token_classification_samples(files, tokenizer, options));
}

}  // namespace finetune
