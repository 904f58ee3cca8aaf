// SPDX-License-Identifier: MIT
#include "predict/query_columns.h"

#include <algorithm>
#include <initializer_list>

#include "finetune/base/error.h"
#include "finetune/base/log.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(const DataRow& row, const std::string& what) {
  throw Error(ErrorKind::kData, row.place + ": " + what);
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
  const auto found = row.columns.find(name);
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

// ["a", "b"] or {"text": ["a", "b"], ...}; nothing for anything else.
const Json* list_in(const Json& value) {
  if (value.is_array()) return &value;
  if (!value.is_object()) return nullptr;
  const auto found = value.find("text");
  return found != value.end() && found->is_array() ? &*found : nullptr;
}

std::optional<std::string> first_of(const DataRow& row,
                                    std::initializer_list<const char*> candidates) {
  for (const char* name : candidates) {
    if (row.columns.contains(name)) return name;
  }
  return std::nullopt;
}

bool is_label(const std::string& name) {
  return name == "label" || name == "labels" || name == "label_ids";
}

}  // namespace

void QueryReader::guess(const DataRow& row) {
  if (guessed_) return;
  guessed_ = true;
  if (task_ == PredictTask::kQuestionAnswering) {
    first_ = named_.context_column.value_or("context");
    second_ = named_.text_column.value_or("question");
  } else if (task_ == PredictTask::kMultipleChoice) {
    guess_choices(row);
  } else {
    guess_text(row);
  }
  say_guess(row);
}

// What was not named but found is told, as everywhere.
void QueryReader::say_guess(const DataRow& row) const {
  if (row.columns.size() == 1) return;  // a line of text, or no choice at all
  std::string guess;
  const auto add = [&](const char* option, const std::string& column) {
    guess += (guess.empty() ? "" : ", ") + std::string(option) + ": '" + column + "'";
  };
  if (task_ == PredictTask::kMultipleChoice) {
    if (!named_.context_column) add("context_column", first_);
    if (named_.choice_columns.empty())
      add("choice_columns", choices_.front() + "' to '" + choices_.back());
  } else if (task_ != PredictTask::kQuestionAnswering) {
    if (!named_.text_column) add("text_column", first_);
    if (second_ && !named_.text_pair_column) add("text_pair_column", *second_);
  }
  if (!guess.empty()) log::info(guess + " (guessed from " + row.place + ")");
}

void QueryReader::guess_text(const DataRow& row) {
  if (task_ == PredictTask::kTextClassification) second_ = named_.text_pair_column;
  if (named_.text_column) {
    first_ = *named_.text_column;
    return;
  }
  const bool pairs = task_ == PredictTask::kTextClassification && !second_;
  if (pairs && row.columns.contains("sentence1")) {
    first_ = "sentence1";
    if (row.columns.contains("sentence2")) second_ = "sentence2";
    return;
  }
  if (task_ == PredictTask::kTokenClassification || task_ == PredictTask::kFillMask) {
    const auto known = first_of(row, {"tokens", "words", "text", "sentence"});
    if (known) {
      first_ = *known;
      return;
    }
  }
  std::vector<std::string> others;
  for (const auto& [name, value] : row.columns.items()) {
    if (!is_label(name) && name != named_.text_pair_column) others.push_back(name);
  }
  const auto is_text = [&](const std::string& name) { return row.columns[name].is_string(); };
  if (pairs && others.size() >= 2 && is_text(others[0]) && is_text(others[1])) {
    first_ = others[0];
    second_ = others[1];
  } else {
    std::erase_if(others, [&](const std::string& name) { return !is_text(name); });
    if (others.size() != 1) {
      refuse(row, "--text_column must say which column is the text; the row has " + names_of(row));
    }
    first_ = others[0];
  }
}

void QueryReader::guess_choices(const DataRow& row) {
  const auto context =
      named_.context_column
          ? named_.context_column
          : first_of(row, {"sent1", "question", "context", "premise", "sentence", "text"});
  if (!context) {
    refuse(row, "--context_column must say what is chosen for; the row has " + names_of(row));
  }
  first_ = *context;
  second_ = named_.text_column;
  if (!second_ && first_ == "sent1" && row.columns.contains("sent2")) second_ = "sent2";
  choices_ = named_.choice_columns;
  if (!choices_.empty()) return;
  for (const std::string name : {"ending", "choice", "option", "answer"}) {
    int64_t number = row.columns.contains(name + "0") ? 0 : 1;
    for (; row.columns.contains(name + std::to_string(number)); ++number) {
      choices_.push_back(name + std::to_string(number));
    }
    if (choices_.size() > 1) return;
    choices_.clear();
  }
  for (const char* name : {"choices", "endings", "options", "answers"}) {
    const auto found = row.columns.find(name);
    if (found == row.columns.end() || list_in(*found) == nullptr) continue;
    choices_ = {name};
    return;
  }
  refuse(row,
         "--choice_columns must say which columns are the choices; the row has " + names_of(row));
}

void QueryReader::read(const DataRow& row, const std::function<void(Query)>& visit) {
  const auto paragraphs = row.columns.find("paragraphs");
  if (task_ == PredictTask::kQuestionAnswering && paragraphs != row.columns.end() &&
      paragraphs->is_array()) {
    for (const Json& paragraph : *paragraphs) {
      const DataRow part = {.columns = paragraph, .place = row.place, .typed = row.typed};
      if (!paragraph.is_object() || !column(part, "qas").is_array()) {
        refuse(row, "its paragraphs are not SQuAD's {\"context\", \"qas\"}");
      }
      for (const Json& asked : column(part, "qas")) {
        if (!asked.is_object()) refuse(row, "its qas are not SQuAD's {\"question\", ...}");
        const DataRow question = {.columns = asked, .place = row.place, .typed = row.typed};
        visit({.where = row.place,
               .text = text_in(part, "context"),
               .pair = text_in(question, "question")});
      }
    }
    return;
  }
  guess(row);
  visit(task_ == PredictTask::kMultipleChoice ? choice_query(row) : text_query(row));
}

Query QueryReader::text_query(const DataRow& row) const {
  Query query{.where = row.place, .text = {}};
  const Json& text = column(row, first_);
  const bool is_one_word =
      row.bare_lists && text.is_string() && (first_ == "tokens" || first_ == "words");
  if (task_ == PredictTask::kTokenClassification && (text.is_array() || is_one_word)) {
    query.parts = texts_in(row, first_, is_one_word ? Json::array({text}) : text);
  } else {
    query.text = text_in(row, first_);
  }
  if (second_) query.pair = text_in(row, *second_);
  return query;
}

Query QueryReader::choice_query(const DataRow& row) const {
  Query query{.where = row.place, .text = text_in(row, first_)};
  if (second_) query.pair = text_in(row, *second_);
  if (choices_.size() > 1) {
    for (const std::string& name : choices_) query.parts.push_back(text_in(row, name));
    return query;
  }
  const Json* list = list_in(column(row, choices_[0]));
  if (list == nullptr) refuse(row, "column '" + choices_[0] + "' holds no list of choices");
  query.parts = texts_in(row, choices_[0], *list);
  return query;
}

}  // namespace finetune
