// SPDX-License-Identifier: MIT
#include "task/predict/query_columns.h"

#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/model/model_folder.h"
#include "finetune/task/tasks.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(const DataRow& row, const std::string& what) {
  throw Error(ErrorKind::kData, row.position + ": " + what);
}

std::string names_of(const DataRow& row) {
  std::string names;
  for (const auto& [name, value] : row.columns.items()) {
    names += (names.empty() ? "" : ", ") + ("'" + name + "'");
    if (names.size() > 300) return names + ", ...";
  }
  return names.empty() ? "no columns" : "the columns " + names;
}

const Json& column(const DataRow& row, const std::string& name) {
  const auto there = match_column(row.columns, name);
  const auto found = there ? row.columns.find(*there) : row.columns.end();
  if (found == row.columns.end()) {
    refuse(row, "there is no column '" + name + "'; the row has " + names_of(row));
  }
  return *found;
}

std::string text_in(const DataRow& row, const std::string& name) {
  const Json& value = column(row, name);
  if (!value.is_string()) {
    refuse(row, "column '" + name + "' holds " + std::string(value.type_name()) + ", not text");
  }
  return value.get<std::string>();
}

std::vector<std::string> texts_in(const DataRow& row, const std::string& name, const Json& list) {
  std::vector<std::string> texts;
  for (const Json& item : list) {
    if (!item.is_string()) {
      refuse(row, "column '" + name + "' holds " + std::string(item.type_name()) +
                      " in its list, not text");
    }
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

// Returns the list in ["a", "b"] or {"text": ["a", "b"], ...}; null for anything else.
const Json* list_in(const Json& value) {
  if (value.is_array()) return &value;
  if (!value.is_object()) return nullptr;
  const auto found = value.find("text");
  return found != value.end() && found->is_array() ? &*found : nullptr;
}

}  // namespace

DataRecord trained_data(const TaskDescriptor& task, const std::string& folder) {
  return trained_record(resolve_model_folder(folder, "MODEL_DIR"), task.rows);
}

void QueryReader::find_columns(const DataRow& row) {
  const FoundColumns found = finetune::find_columns(row, {.task = rows_,
                                                          .named = options_.columns,
                                                          .trained = options_.trained,
                                                          .labels = LabelUse::kUnused,
                                                          .key_prefix = "--"});
  if (!found.warning.empty()) log::warning(found.warning);
  if (!found.report.empty()) log::info(found.report);
  columns_ = found.names;
}

void QueryReader::read(const DataRow& row, const std::function<void(Query)>& visit) {
  const auto paragraphs = row.columns.find("paragraphs");
  if (rows_ == RowTask::kQuestionAnswering && paragraphs != row.columns.end() &&
      paragraphs->is_array()) {
    for (const Json& paragraph : *paragraphs) {
      const DataRow part = {.columns = paragraph, .position = row.position, .typed = row.typed};
      if (!paragraph.is_object() || !column(part, "qas").is_array()) {
        refuse(row, "its paragraphs are not SQuAD's {\"context\", \"qas\"}");
      }
      for (const Json& asked : column(part, "qas")) {
        if (!asked.is_object()) refuse(row, "its qas are not SQuAD's {\"question\", ...}");
        const DataRow question = {.columns = asked, .position = row.position, .typed = row.typed};
        visit({.where = row.position,
               .text = text_in(part, "context"),
               .pair = text_in(question, "question")});
      }
    }
    return;
  }
  if (rows_ == RowTask::kDecision) {
    return visit({.where = row.position, .text = {}, .conversation = row.columns.dump()});
  }
  if (!columns_) find_columns(row);
  if (rows_ == RowTask::kQuestionAnswering) return visit(question_query(row));
  visit(rows_ == RowTask::kMultipleChoice ? choice_query(row) : text_query(row));
}

Query QueryReader::text_query(const DataRow& row) const {
  Query query{.where = row.position, .text = {}};
  const std::string& name = *columns_->text_column;
  const Json& text = column(row, name);
  const bool is_one_word =
      row.bare_lists && text.is_string() && (name == "tokens" || name == "words");
  const bool tags = rows_ == RowTask::kTokenClassification;
  if (tags && (text.is_array() || is_one_word)) {
    query.parts = texts_in(row, name, is_one_word ? Json::array({text}) : text);
  } else {
    query.text = text_in(row, name);
  }
  if (columns_->text_pair_column) query.pair = text_in(row, *columns_->text_pair_column);
  return query;
}

Query QueryReader::question_query(const DataRow& row) const {
  return {.where = row.position,
          .text = text_in(row, *columns_->context_column),
          .pair = text_in(row, *columns_->text_column)};
}

Query QueryReader::choice_query(const DataRow& row) const {
  Query query{.where = row.position, .text = text_in(row, *columns_->context_column)};
  if (columns_->text_column) query.pair = text_in(row, *columns_->text_column);
  const std::vector<std::string>& choices = columns_->choice_columns;
  if (choices.size() > 1) {
    for (const std::string& name : choices) query.parts.push_back(text_in(row, name));
    return query;
  }
  const Json* list = list_in(column(row, choices[0]));
  if (list == nullptr) refuse(row, "column '" + choices[0] + "' holds no list of choices");
  query.parts = texts_in(row, choices[0], *list);
  return query;
}

}  // namespace finetune
