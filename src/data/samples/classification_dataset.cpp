// SPDX-License-Identifier: MIT
#include "finetune/data/classification_dataset.h"

#include <utility>

#include "data/columns/json_row.h"
#include "data/columns/label_values.h"
#include "data/columns/row_columns.h"
#include "data/samples/sample_building.h"
#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/data/batch.h"

namespace finetune {
namespace {

using Json = Row::Json;

ColumnSearch search_of(const ClassificationOptions& options) {
  return {.task = RowTask::kSequenceClassification,
          .named = {.text_column = options.text_column,
                    .text_pair_column = options.text_pair_column,
                    .label_column = options.label_column},
          .labels = options.labels_required ? LabelUse::kRequired : LabelUse::kOptional};
}

class ClassificationEncoder {
 public:
  ClassificationEncoder(const Tokenizer& tokenizer, const ClassificationOptions& options,
                        ColumnNames columns)
      : tokenizer_(tokenizer),
        options_(options),
        columns_(std::move(columns)),
        maker_(tokenizer, options, columns_.text_pair_column.has_value()) {}

  [[nodiscard]] TokenContent encode(const RowBlock& block) const {
    TokenContent content;
    content.outputs = outputs();
    for (const RowBlock::Row& position : block.rows) {
      const Row row(block, position);
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
    const std::vector<int32_t> first = tokenizer_.encode(row.text(*columns_.text_column));
    const std::optional<std::string>& pair = columns_.text_pair_column;
    maker_.add(content,
               pair ? maker_.make(first, tokenizer_.encode(row.text(*pair))) : maker_.make(first),
               row.position());
  }

  void add_label(TokenContent& content, const Row& row) const {
    const bool known =
        columns_.label_column && (options_.labels_required || row.has(*columns_.label_column));
    if (options_.problem == ProblemType::kSingleLabel) {
      const int64_t label = known ? label_number(options_.labels, row.at(*columns_.label_column),
                                                 row, *columns_.label_column)
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
    for (const Json& value : row.list(*columns_.label_column)) {
      const int64_t label = label_number(options_.labels, value, row, *columns_.label_column);
      if (label != kIgnoredLabel) content.values[begin + static_cast<size_t>(label)] = 1.0F;
    }
  }

  void add_numbers(TokenContent& content, const Row& row) const {
    const std::string& column = *columns_.label_column;
    const Json& value = row.at(column);
    const bool single = options_.outputs == 1 && !value.is_array();
    const Json values = single ? Json::array({value}) : row.list(column);
    if (static_cast<int64_t>(values.size()) != options_.outputs) {
      row.fail(format_text("column '{}' holds {} numbers where the model gives {}", column,
                           values.size(), options_.outputs));
    }
    for (const Json& number : values) content.values.push_back(number_of(number, row, column));
  }

  const Tokenizer& tokenizer_;
  ClassificationOptions options_;
  ColumnNames columns_;
  SequenceMaker maker_;
};

}  // namespace

std::shared_ptr<const SequenceDataset> build_classification_dataset(
    const std::vector<std::string>& files, const Tokenizer& tokenizer,
    const ClassificationOptions& options) {
  FT_CHECK(options.problem == ProblemType::kRegression || !options.labels.empty(),
           "classification needs labels");
  FT_CHECK(options.outputs >= 1, "regression gives numbers");
  const ColumnNames columns = find_columns(first_row(files, options), search_of(options)).names;
  const auto encoder = std::make_shared<const ClassificationEncoder>(tokenizer, options, columns);
  Json key = cache_options(options, "classification");
  key["columns"] = {columns.text_column.value_or(""), columns.text_pair_column.value_or(""),
                    columns.label_column.value_or("")};
  key["problem"] = static_cast<int>(options.problem);
  key["labels"] = options.labels.names();
  key["outputs"] = options.outputs;
  return build_samples(
      {.files = files,
       .tokenizer = tokenizer,
       .cache_options = std::move(key),
       .limits = {.classes = options.labels.size()},
       .encode = [encoder](const RowBlock& block) { return encoder->encode(block); }},
      options);
}

}  // namespace finetune
