// SPDX-License-Identifier: MIT
#include "finetune/data/classification_dataset.h"

#include <utility>

#include "data/json_row.h"
#include "data/label_values.h"
#include "data/sample_building.h"
#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/data/batch.h"

namespace finetune {
namespace {

using Json = Row::Json;

using Columns = ClassificationColumns;

bool is_row_number(const std::string& name) {
  return name == "id" || name == "idx" || name == "guid" || name == "index" ||
         name.ends_with("_id");
}

void guess_texts(const Row& row, Columns& columns) {
  const auto is_text = [&](const std::string& name) { return holds_text(row, name); };
  std::vector<std::string> others;
  std::vector<std::string> texts;
  for (const std::string& name : row.names()) {
    if ((columns.label && name == *columns.label) || is_row_number(name)) continue;
    others.push_back(name);
    if (is_text(name)) texts.push_back(name);
  }
  const Json& all = row.columns();
  if (all.contains("sentence1") && all.contains("sentence2")) {
    columns.text = "sentence1";
    columns.pair = "sentence2";
  } else if (others.size() >= 2 && is_text(others[0]) && is_text(others[1])) {
    columns.text = others[0];
    columns.pair = others[1];
  } else if (texts.size() == 1 || (others.size() == 1 && !row.typed())) {
    columns.text = texts.empty() ? others.front() : texts.front();
  } else {
    row.fail(std::string(texts.empty() ? "no column holds text" : "several columns hold text") +
             "; the row has " + column_names(all) + "; set text_column (and text_pair_column)");
  }
}

Columns find_columns(const Row& row, const ClassificationOptions& options) {
  Columns columns;
  if (options.label_column || options.labels_required) {
    if (options.labels_required || row.columns().contains(*options.label_column)) {
      columns.label = find_label_column(row, options.label_column);
    }
  } else {
    columns.label = first_column(row, {"label", "labels", "label_ids"});
  }
  if (options.text_column) {
    columns.text = *options.text_column;
    columns.pair = options.text_pair_column;
  } else {
    guess_texts(row, columns);
    if (options.text_pair_column) columns.pair = options.text_pair_column;
  }
  static_cast<void>(row.text(columns.text));
  if (columns.pair) static_cast<void>(row.text(*columns.pair));
  std::string guess;
  if (!options.text_column) {
    guess = "text_column: '" + columns.text + "'";
    if (columns.pair && !options.text_pair_column) {
      guess += ", text_pair_column: '" + *columns.pair + "'";
    }
  }
  if (!options.label_column && columns.label && *columns.label != "label") {
    guess += (guess.empty() ? "label_column: '" : ", label_column: '") + *columns.label + "'";
  }
  if (!guess.empty()) log::info(guess + " (guessed from " + row.place() + ")");
  return columns;
}

class ClassificationEncoder {
 public:
  ClassificationEncoder(const Tokenizer& tokenizer, const ClassificationOptions& options,
                        Columns columns)
      : tokenizer_(tokenizer),
        options_(options),
        columns_(std::move(columns)),
        maker_(tokenizer, options, columns_.pair.has_value()) {}

  [[nodiscard]] TokenContent encode(const RowBlock& block) const {
    TokenContent content;
    content.outputs = outputs();
    for (const RowBlock::Row& place : block.rows) {
      const Row row(block, place);
      add_text(content, row);
      add_label(content, row);
    }
    return content;
  }

 private:
  [[nodiscard]] int64_t outputs() const {
    if (options_.problem == ProblemType::kSingleLabel) return 0;
    return options_.problem == ProblemType::kMultiLabel ? options_.labels.size() : options_.outputs;
  }

  void add_text(TokenContent& content, const Row& row) const {
    const std::vector<int32_t> first = tokenizer_.encode(row.text(columns_.text));
    maker_.add(content,
               columns_.pair ? maker_.make(first, tokenizer_.encode(row.text(*columns_.pair)))
                             : maker_.make(first),
               row.place());
  }

  void add_label(TokenContent& content, const Row& row) const {
    const bool known = columns_.label && (options_.labels_required || row.has(*columns_.label));
    if (options_.problem == ProblemType::kSingleLabel) {
      const int64_t label =
          known ? label_number(options_.labels, row.at(*columns_.label), row, *columns_.label)
                : kIgnoredLabel;
      content.classes.push_back(static_cast<int32_t>(label));
      return;
    }
    if (!known) return;
    if (options_.problem == ProblemType::kMultiLabel) {
      add_labels(content, row);
    } else {
      add_numbers(content, row);
    }
  }

  void add_labels(TokenContent& content, const Row& row) const {
    const size_t begin = content.values.size();
    content.values.resize(begin + static_cast<size_t>(options_.labels.size()), 0.0F);
    for (const Json& value : row.list(*columns_.label)) {
      const int64_t label = label_number(options_.labels, value, row, *columns_.label);
      if (label != kIgnoredLabel) content.values[begin + static_cast<size_t>(label)] = 1.0F;
    }
  }

  void add_numbers(TokenContent& content, const Row& row) const {
    const std::string& column = *columns_.label;
    const Json& value = row.at(column);
    const bool single = options_.outputs == 1 && !value.is_array();
    const Json values = single ? Json::array({value}) : row.list(column);
    if (static_cast<int64_t>(values.size()) != options_.outputs) {
      row.fail("column '" + column + "' holds " + std::to_string(values.size()) +
               " numbers where the model gives " + std::to_string(options_.outputs));
    }
    for (const Json& number : values) content.values.push_back(number_of(number, row, column));
  }

  const Tokenizer& tokenizer_;
  const ClassificationOptions& options_;
  Columns columns_;
  SequenceMaker maker_;
};

}  // namespace

ClassificationColumns find_classification_columns(const std::vector<std::string>& files,
                                                  const ClassificationOptions& options) {
  return find_columns(first_row(files, options), options);
}

std::shared_ptr<const SequenceDataset> build_classification_dataset(
    const std::vector<std::string>& files, const Tokenizer& tokenizer,
    const ClassificationOptions& options) {
  FT_CHECK(options.problem == ProblemType::kRegression || !options.labels.empty(),
           "classification needs labels");
  FT_CHECK(options.outputs >= 1, "regression gives numbers");
  const ClassificationEncoder encoder(tokenizer, options,
                                      find_columns(first_row(files, options), options));
  Json key = cache_options(options, "classification");
  key["columns"] = {options.text_column.value_or(""), options.text_pair_column.value_or(""),
                    options.label_column.value_or("")};
  key["problem"] = static_cast<int>(options.problem);
  key["labels"] = options.labels.names();
  key["outputs"] = options.outputs;
  return build_samples({.files = files,
                        .tokenizer = tokenizer,
                        .cache_options = std::move(key),
                        .limits = {.classes = options.labels.size()},
                        .encode = [&](const RowBlock& block) { return encoder.encode(block); }},
                       options);
}

}  // namespace finetune
