// SPDX-License-Identifier: MIT
#include "finetune/data/text_list_dataset.h"

#include <utility>

#include "data/columns/json_row.h"
#include "data/columns/label_values.h"
#include "data/columns/row_columns.h"
#include "data/samples/sample_building.h"
#include "finetune/base/error.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

using Json = Row::Json;

class TextListEncoder {
 public:
  TextListEncoder(const Tokenizer& tokenizer, const TextListOptions& options, const Row& first)
      : tokenizer_(tokenizer),
        options_(options),
        first_position_(first.position()),
        maker_(tokenizer, options, options.pairs_with_first),
        texts_(static_cast<int64_t>(texts_of(first).size())),
        labels_(options.label_column ? std::ssize(labels_of(first)) : 0) {
    if (options.pairs_with_first && texts_ < 2) {
      first.fail("has one text, and a pair takes two; name them with text_columns");
    }
  }

  [[nodiscard]] TokenContent encode(const RowBlock& block) const {
    TokenContent content;
    content.choices = options_.pairs_with_first ? texts_ - 1 : texts_;
    content.outputs = labels_;
    for (const RowBlock::Row& position : block.rows) {
      const Row row(block, position);
      const std::vector<std::string> texts = texts_of(row);
      if (std::ssize(texts) != texts_) {
        row.fail(format_text("has {} texts where {} has {}; all rows must have the same number",
                             texts.size(), first_position_, texts_));
      }
      std::vector<std::vector<int32_t>> ids;
      for (const std::string& text : texts) ids.push_back(tokenizer_.encode(text));
      for (size_t i = options_.pairs_with_first ? 1 : 0; i < ids.size(); ++i) {
        maker_.add(content,
                   options_.pairs_with_first ? maker_.make(ids[0], ids[i]) : maker_.make(ids[i]),
                   row.position());
      }
      if (options_.label_column) add_labels(content, row);
    }
    return content;
  }

 private:
  void add_labels(TokenContent& content, const Row& row) const {
    const std::string& column = *options_.label_column;
    const Json labels = labels_of(row);
    if (std::ssize(labels) != labels_) {
      row.fail(format_text("column '{}' holds {} labels where {} has {}", column, labels.size(),
                           first_position_, labels_));
    }
    for (const Json& label : labels) {
      const float value = number_of(label, row, column);
      const std::string problem = options_.problem_of_label ? options_.problem_of_label(value) : "";
      if (!problem.empty()) {
        row.fail("column '" + column + "' holds " + describe(label) + "; " + problem);
      }
      content.values.push_back(value);
    }
  }

  [[nodiscard]] Json labels_of(const Row& row) const {
    const Json& value = row.at(*options_.label_column);
    return value.is_array() ? value : Json::array({value});
  }

  [[nodiscard]] std::vector<std::string> texts_of(const Row& row) const {
    if (options_.joined) return {joined_text(row)};
    std::vector<std::string> texts;
    for (const std::string& column : options_.text_columns) {
      const std::string prompt = prompt_of(column);
      const auto add = [&](const std::string& text) {
        if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
          row.fail("column '" + column +
                   "' holds an empty text, which has no meaning to embed; "
                   "remove the row");
        }
        texts.push_back(prompt + text);
      };
      if (row.at(column).is_array()) {
        for (const std::string& text : row.texts(column)) add(text);
      } else {
        add(row.text(column));
      }
    }
    return texts;
  }

  [[nodiscard]] std::string prompt_of(const std::string& column) const {
    const auto found = options_.prompts.find(column);
    return found == options_.prompts.end() ? "" : found->second;
  }

  [[nodiscard]] std::string joined_text(const Row& row) const {
    std::string text;
    for (const std::string& column : options_.text_columns) {
      if (!row.has(column) || row.text(column).empty()) continue;
      text += (text.empty() ? "" : " ") + row.text(column);
    }
    return prompt_of(options_.text_columns.back()) + text;
  }

  const Tokenizer& tokenizer_;
  TextListOptions options_;
  std::string first_position_;
  SequenceMaker maker_;
  int64_t texts_;
  int64_t labels_;  // of a row; 0: none
};

}  // namespace

std::shared_ptr<const SequenceDataset> build_text_list_dataset(
    const std::vector<std::string>& files, const Tokenizer& tokenizer,
    const TextListOptions& options) {
  FT_CHECK(!options.text_columns.empty(), "samples are made of texts");
  const auto encoder =
      std::make_shared<const TextListEncoder>(tokenizer, options, first_row(files, options));
  Json key = cache_options(options, "texts");
  key["columns"] = options.text_columns;
  key["label_column"] = options.label_column.value_or("");
  key["prompts"] = options.prompts;
  key["pairs"] = options.pairs_with_first;
  if (options.joined) key["joined"] = true;
  return build_samples(
      {.files = files,
       .tokenizer = tokenizer,
       .cache_options = std::move(key),
       .limits = {},
       .encode = [encoder](const RowBlock& block) { return encoder->encode(block); }},
      options);
}

}  // namespace finetune
