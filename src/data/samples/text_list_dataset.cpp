// SPDX-License-Identifier: MIT
#include "finetune/data/text_list_dataset.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "data/cache/file_findings.h"
#include "data/columns/json_row.h"
#include "data/columns/label_values.h"
#include "data/columns/row_columns.h"
#include "data/samples/sample_building.h"
#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/data/data_files.h"

namespace finetune {
namespace {

using Json = Row::Json;

class TextListEncoder {
 public:
  // `most_texts`: of a row, where their number differs; 0: it does not.
  TextListEncoder(const Tokenizer& tokenizer, const TextListOptions& options, const Row& first,
                  int64_t most_texts)
      : tokenizer_(tokenizer),
        options_(options),
        first_position_(first.position()),
        maker_(tokenizer, options, options.pairs_with_first),
        differ_(most_texts > 0),
        texts_(differ_ ? most_texts : static_cast<int64_t>(texts_of(first).size())),
        labels_(differ_                ? texts_ - 1
                : options.label_column ? std::ssize(labels_of(first))
                                       : 0) {
    if ((options.pairs_with_first || options.bare) && texts_ < 2) {
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
      if (differ_) {
        check_pair(row, texts);
      } else if (std::ssize(texts) != texts_) {
        row.fail(format_text("has {} texts where {} has {}; all rows must have the same number",
                             texts.size(), first_position_, texts_));
      }
      std::vector<std::vector<int32_t>> ids;
      for (const std::string& text : texts) ids.push_back(tokenizer_.encode(text));
      for (size_t i = options_.pairs_with_first ? 1 : 0; i < ids.size(); ++i) {
        maker_.add(content,
                   options_.bare               ? bare(ids[i])
                   : options_.pairs_with_first ? maker_.make(ids[0], ids[i])
                                               : maker_.make(ids[i]),
                   row.position());
      }
      for (int64_t i = std::ssize(ids); i < texts_; ++i) {
        const auto begin = [](const std::vector<int32_t>& all) {
          return std::span(all).first(std::min<size_t>(1, all.size()));
        };
        maker_.add(content, maker_.make(begin(ids[0]), begin(ids[1])), row.position());
      }
      const auto documents = std::ssize(ids) - 1;
      if (options_.label_column) {
        add_labels(content, row, differ_ ? documents : labels_);
      } else if (differ_) {
        for (int64_t i = 0; i < documents; ++i) content.values.push_back(i == 0 ? 1.0F : 0.0F);
      }
      if (!differ_) continue;
      content.values.insert(content.values.end(), static_cast<size_t>(labels_ - documents),
                            std::numeric_limits<float>::quiet_NaN());
    }
    return content;
  }

 private:
  // A pair that is cut to max_seq_length holds no more of a text than this.
  [[nodiscard]] ModelText bare(std::vector<int32_t> ids) const {
    const auto most = static_cast<size_t>(options_.max_seq_length);
    if (ids.size() > most && tokenizer_.sides().truncate_left) {
      ids.erase(ids.begin(), ids.end() - options_.max_seq_length);
    }
    ids.resize(std::min(ids.size(), most));
    return {.ids = std::move(ids), .token_types = {}, .texts = {}, .tokens = {}};
  }
  static void check_pair(const Row& row, const std::vector<std::string>& texts) {
    if (texts.size() > 1) return;
    row.fail("has " + std::string(texts.empty() ? "no text" : "one text") +
             ", and a pair takes two; remove the row");
  }
  void add_labels(TokenContent& content, const Row& row, int64_t wanted) const {
    const std::string& column = *options_.label_column;
    const Json labels = labels_of(row);
    if (std::ssize(labels) != wanted) {
      row.fail(differ_ ? format_text("column '{}' holds {} labels and the row has {} documents",
                                     column, labels.size(), wanted)
                       : format_text("column '{}' holds {} labels where {} has {}", column,
                                     labels.size(), first_position_, wanted));
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
  bool differ_;
  int64_t texts_;
  int64_t labels_;  // of a row; 0: none
};

// Returns the most texts of a row; 0 if all rows have the same number.
int64_t most_texts(const std::vector<std::string>& files, const TextListOptions& options) {
  RowOptions all = options;
  all.progress = {};
  all.rows = {};
  all.share.reset();
  FileQuestion question{.kind = "texts", .files = expand_files(files, options.key), .options = {}};
  question.options["columns"] = options.text_columns;
  add_reading(question.options, options.reading);
  int64_t most = 0;
  const auto count = [&] {
    int64_t fewest = INT64_MAX;
    int64_t longest = 0;
    visit_rows(files, all, [&](const DataRow& row) {
      int64_t texts = 0;
      for (const std::string& column : options.text_columns) {
        const auto found = row.columns.find(column);
        texts += found != row.columns.end() && found->is_array() ? std::ssize(*found) : 1;
      }
      fewest = std::min(fewest, texts);
      longest = std::max(longest, texts);
      return true;
    });
    return Json(fewest == longest ? 0 : longest);
  };
  answer_from_files(options.cache, question, count,
                    [&](const Json& found) { most = found.get<int64_t>(); });
  return most;
}

}  // namespace

std::shared_ptr<const SequenceDataset> build_text_list_dataset(
    const std::vector<std::string>& files, const Tokenizer& tokenizer,
    const TextListOptions& options) {
  FT_CHECK(!options.text_columns.empty(), "samples are made of texts");
  const Row first = first_row(files, options);
  const bool has_lists = std::ranges::any_of(options.text_columns, [&](const std::string& column) {
    return first.find(column) && first.at(column).is_array();
  });
  const bool may_differ = options.lists_may_differ && has_lists && !options.stream;
  const int64_t most = may_differ ? most_texts(files, options) : 0;
  const auto encoder = std::make_shared<const TextListEncoder>(tokenizer, options, first, most);
  Json key = cache_options(options, "texts");
  key["columns"] = options.text_columns;
  key["label_column"] = options.label_column.value_or("");
  key["prompts"] = options.prompts;
  key["pairs"] = options.pairs_with_first;
  if (options.joined) key["joined"] = true;
  if (options.bare) key["bare"] = true;
  if (!options.label_rule.empty()) key["label_rule"] = options.label_rule;
  if (most > 0) key["texts"] = most;
  return build_samples(
      {.files = files,
       .tokenizer = tokenizer,
       .cache_options = std::move(key),
       .limits = {},
       .encode = [encoder](const RowBlock& block) { return encoder->encode(block); }},
      options);
}

}  // namespace finetune
