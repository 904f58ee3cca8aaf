// SPDX-License-Identifier: MIT
#include "finetune/data/multiple_choice_dataset.h"

#include <algorithm>
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

// The choices of a row.
struct Choices {
  std::vector<std::string> texts;
  std::vector<std::string> names;  // names of the choices that labels may use; or empty
};

Choices choices_of(const Row& row, const ColumnNames& columns) {
  if (columns.choice_columns.size() > 1) {
    Choices choices{.texts = {}, .names = columns.choice_columns};
    for (const std::string& column : columns.choice_columns)
      choices.texts.push_back(row.text(column));
    return choices;
  }
  const std::string& column = columns.choice_columns.front();
  const Json value = row.list(column);
  if (!value.is_object()) return {.texts = row.texts(column), .names = {}};
  if (!value.contains("text")) {
    row.fail("column '" + column +
             "' holds an object without a list 'text'; write a list of "
             "choices, or {\"text\": [...], \"label\": [...]}");
  }
  const Row inner(value, row.position() + ": in column '" + column + "'", true, row.bare_lists());
  Choices choices{.texts = inner.texts("text"), .names = {}};
  if (value.contains("label")) choices.names = inner.texts("label");
  if (!choices.names.empty() && choices.names.size() != choices.texts.size()) {
    row.fail(format_text("column '{}' holds {} choices but {} labels of them", column,
                         choices.texts.size(), choices.names.size()));
  }
  return choices;
}

std::optional<size_t> only_position(const std::vector<std::string>& list, const std::string& text) {
  const auto found = std::ranges::find(list, text);
  if (found == list.end() || std::find(found + 1, list.end(), text) != list.end()) {
    return std::nullopt;
  }
  return static_cast<size_t>(found - list.begin());
}

// Returns the choice that a text names.
std::optional<size_t> named_choice(const std::string& text, const Choices& choices) {
  if (const auto position = only_position(choices.names, text)) return position;
  if (const auto number = parse_integer(text)) {
    const auto size = static_cast<int64_t>(choices.texts.size());
    if (*number >= 0 && *number < size) return static_cast<size_t>(*number);
  }
  if (const auto position = only_position(choices.texts, text)) return position;
  if (text.size() == 1 && text[0] >= 'A' && text[0] <= 'Z') {
    const auto position = static_cast<size_t>(text[0] - 'A');
    if (position < choices.texts.size()) return position;
  }
  return std::nullopt;
}

class MultipleChoiceEncoder {
 public:
  MultipleChoiceEncoder(const Tokenizer& tokenizer, const MultipleChoiceOptions& options,
                        const Row& first, ColumnNames columns)
      : tokenizer_(tokenizer),
        options_(options),
        columns_(std::move(columns)),
        first_position_(first.position()),
        choices_(choices_of(first, columns_).texts.size()),
        maker_(tokenizer, options, true) {
    if (choices_ < 2) {
      first.fail(format_text(
          "has {} choices; multiple choice needs at least two (set choice_columns)", choices_));
    }
  }

  [[nodiscard]] int64_t choices() const { return static_cast<int64_t>(choices_); }
  [[nodiscard]] TokenContent encode(const RowBlock& block) const {
    TokenContent content;
    content.choices = static_cast<int64_t>(choices_);
    for (const RowBlock::Row& position : block.rows) {
      const Row row(block, position);
      const Choices choices = choices_of(row, columns_);
      if (choices.texts.size() != choices_) {
        row.fail(format_text("has {} choices where {} has {}; all rows must have the same number",
                             choices.texts.size(), first_position_, choices_));
      }
      add_texts(content, row, choices);
      content.classes.push_back(static_cast<int32_t>(label_of(row, choices)));
    }
    return content;
  }

 private:
  void add_texts(TokenContent& content, const Row& row, const Choices& choices) const {
    const std::vector<int32_t> context = tokenizer_.encode(row.text(*columns_.context_column));
    const std::optional<std::string>& prefixed = columns_.text_column;
    const std::string prefix = prefixed ? row.text(*prefixed) + " " : "";
    for (const std::string& choice : choices.texts) {
      maker_.add(content, maker_.make(context, tokenizer_.encode(prefix + choice)), row.position());
    }
  }

  // A class of the file's schema is the choice of its number, whatever its name.
  [[nodiscard]] std::optional<int64_t> position_in_schema(const Row& row, const std::string& column,
                                                          const Json& value) const {
    const std::vector<std::string>* classes = row.classes(column);
    if (classes == nullptr || !value.is_string()) return std::nullopt;
    const auto position = std::ranges::find(*classes, value.get<std::string>()) - classes->begin();
    return position < std::min(std::ssize(*classes), static_cast<std::ptrdiff_t>(choices_))
               ? std::optional<int64_t>(position)
               : std::nullopt;
  }

  [[nodiscard]] int64_t label_of(const Row& row, const Choices& choices) const {
    if (!options_.labels_required && (!columns_.label_column || !row.has(*columns_.label_column))) {
      return kIgnoredLabel;
    }
    const std::string& column = *columns_.label_column;
    const Json& value = row.at(column);
    if (const auto position = position_in_schema(row, column, value)) return *position;
    const bool typed_number = value.is_number_integer();
    const std::string text = label_name(value).value_or("");
    const auto number = parse_integer(text);
    if (number && *number < 0 && !options_.labels_required) return kIgnoredLabel;
    if (typed_number) {
      if (number && *number >= 0 && *number < static_cast<int64_t>(choices_)) return *number;
    } else if (value.is_string()) {
      if (const auto position = named_choice(text, choices)) return static_cast<int64_t>(*position);
    }
    row.fail(format_text("column '{}' holds {}, which is no choice; write a number from 0 to {}{}",
                         column, describe(value), choices_ - 1,
                         choices.names.empty() ? ", or the text of a choice"
                                               : ", or '" + choices.names.front() + "' to '" +
                                                     choices.names.back() + "'"));
  }

  const Tokenizer& tokenizer_;
  MultipleChoiceOptions options_;
  ColumnNames columns_;
  std::string first_position_;
  size_t choices_;
  SequenceMaker maker_;
};

}  // namespace

std::shared_ptr<const SequenceDataset> build_multiple_choice_dataset(
    const std::vector<std::string>& files, const Tokenizer& tokenizer,
    const MultipleChoiceOptions& options) {
  const Row first = first_row(files, options);
  const ColumnNames columns =
      find_columns(first,
                   {.task = RowTask::kMultipleChoice,
                    .named = {.text_column = options.prefix_column,
                              .context_column = options.context_column,
                              .choice_columns = options.choice_columns,
                              .label_column = options.label_column},
                    .labels = options.labels_required ? LabelUse::kRequired : LabelUse::kOptional})
          .names;
  const auto encoder =
      std::make_shared<const MultipleChoiceEncoder>(tokenizer, options, first, columns);
  Json key = cache_options(options, "multiple choice");
  key["columns"] = {columns.context_column.value_or(""), columns.text_column.value_or(""),
                    columns.label_column.value_or("")};
  key["choice_columns"] = columns.choice_columns;
  return build_samples(
      {.files = files,
       .tokenizer = tokenizer,
       .cache_options = std::move(key),
       .limits = {.classes = encoder->choices()},
       .encode = [encoder](const RowBlock& block) { return encoder->encode(block); }},
      options);
}

}  // namespace finetune
