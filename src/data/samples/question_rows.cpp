// SPDX-License-Identifier: MIT
#include "data/samples/question_rows.h"

#include <algorithm>
#include <utility>

#include "data/columns/label_values.h"
#include "data/readers/white_space.h"
#include "finetune/base/text.h"
#include "finetune/base/utf8.h"

namespace finetune {
namespace {

using Json = Row::Json;

// Returns the byte at which a code point begins; npos beyond the end.
size_t byte_of(std::string_view text, int64_t code_point) {
  size_t at = 0;
  for (int64_t i = 0; i < code_point; ++i) {
    if (at >= text.size()) return std::string_view::npos;
    static_cast<void>(utf8::decode(text, at));
  }
  return at;
}

int64_t code_points(std::string_view text) {
  int64_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) static_cast<void>(utf8::decode(text, at));
  return count;
}

// Returns as much text from `begin` as the answer has, at most 40 characters.
std::string text_at(const std::string& text, size_t begin, int64_t length) {
  size_t end = begin;
  for (int64_t i = 0; i < std::min<int64_t>(length, 40) && end < text.size(); ++i) {
    static_cast<void>(utf8::decode(text, end));
  }
  return text.substr(begin, end - begin);
}

}  // namespace

QuestionReader::QuestionReader(const QuestionAnsweringOptions& options)
    : question_column_(options.question_column.value_or("question")),
      context_column_(options.context_column.value_or("context")),
      answer_column_(options.answer_column.value_or("answers")),
      without_answer_(options.without_answer),
      answers_required_(options.labels_required) {}

std::vector<AskedQuestion> QuestionReader::read(const Row& row) const {
  if (!row.columns().contains("paragraphs")) {
    return {read_question(row, row.text(context_column_))};
  }
  std::vector<AskedQuestion> questions;
  size_t number = 0;
  for (const Json& value : row.list("paragraphs")) {
    const std::string position = format_text("{}, paragraph {}", row.position(), ++number);
    if (!value.is_object()) row.fail(format_text("paragraph {} is no object", number));
    const Row paragraph(value, position, true);
    const std::string& context = paragraph.text("context");
    for (const Json& asked : paragraph.list("qas")) {
      if (!asked.is_object()) paragraph.fail("'qas' holds " + describe(asked) + ", not an object");
      questions.push_back(read_question(Row(asked, position, true), context));
    }
  }
  return questions;
}

AskedQuestion QuestionReader::read_question(const Row& row, const std::string& context) const {
  AskedQuestion asked;
  asked.position = row.position();
  if (row.has("id")) {
    const auto id = label_name(row.at("id"));
    if (!id) row.fail("'id' holds " + describe(row.at("id")) + " where text is expected");
    asked.question.id = *id;
    asked.position += " (id '" + *id + "')";
  }
  const Row named(row.columns(), asked.position, row.typed(), row.bare_lists());
  asked.question.question = without_front_space(named.text(question_column_));
  asked.question.context = context;
  if (is_white_space(asked.question.question)) named.fail("the question is blank");
  if (is_white_space(context)) named.fail("the context is blank");
  read_answers(named, asked);
  return asked;
}

void QuestionReader::read_answers(const Row& row, AskedQuestion& asked) const {
  // In formats without booleans the value is 1.
  const bool impossible = row.has("is_impossible") && (row.at("is_impossible") == Json(true) ||
                                                       row.at("is_impossible") == Json(1));
  if (impossible) {
    asked.answer_known = true;
  } else if (row.has(answer_column_) || answers_required_) {
    const Json answers = row.list(answer_column_);
    asked.answer_known = true;
    if (answers.is_array()) {
      for (const Json& answer : answers) {
        if (!answer.is_object() || !answer.contains("text")) {
          row.fail("'" + answer_column_ + "' holds " + describe(answer) +
                   " where {\"text\": ..., \"answer_start\": ...} is expected");
        }
        const auto start = answer.find("answer_start");
        take_answer(row, answer["text"], start == answer.end() ? nullptr : &*start, asked);
      }
    } else {
      const Row inner(answers, row.position() + ": in column '" + answer_column_ + "'", true,
                      row.bare_lists());
      const Json texts = inner.list("text");
      const Json starts =
          inner.columns().contains("answer_start") ? inner.list("answer_start") : Json::array();
      if (!texts.is_array() || !starts.is_array() ||
          (!starts.empty() && starts.size() != texts.size())) {
        inner.fail("'text' and 'answer_start' must be lists of the same length");
      }
      for (size_t i = 0; i < texts.size(); ++i) {
        take_answer(row, texts[i], starts.empty() ? nullptr : &starts[i], asked);
      }
    }
  }
  if (asked.answer_known && asked.question.answers.empty() && !without_answer_ &&
      answers_required_) {
    row.fail("has no answer; set version_2_with_negative: true where questions may have none");
  }
}

void QuestionReader::take_answer(const Row& row, const Json& text, const Json* start,
                                 AskedQuestion& asked) const {
  if (!text.is_string() || text.get_ref<const std::string&>().empty()) {
    row.fail("an answer holds " + describe(text) + " where text is expected");
  }
  const auto& answer = text.get_ref<const std::string&>();
  const std::string& context = asked.question.context;
  const bool first = asked.question.answers.empty();
  asked.question.answers.push_back(answer);
  if (start == nullptr) {
    if (answers_required_) {
      row.fail("the answer " + describe(text) +
               " has no 'answer_start' (the place of its first "
               "character in the context)");
    }
    asked.answer_known = false;
    return;
  }
  const bool is_location = start->is_number_integer() && *start >= 0;
  if (!is_location) {
    row.fail("'answer_start' holds " + describe(*start) +
             " where the place of a character in the context is expected");
  }
  const size_t length = context.size();  // in bytes: an upper limit of its characters
  const size_t begin =
      *start <= length ? byte_of(context, start->get<int64_t>()) : std::string::npos;
  if (begin <= length && context.compare(begin, answer.size(), answer) == 0) {
    if (first) {
      asked.answer = {.begin = static_cast<int64_t>(begin),
                      .end = static_cast<int64_t>(begin + answer.size())};
    }
    return;
  }
  const size_t elsewhere = context.find(answer);
  row.fail("the answer '" + text_at(answer, 0, code_points(answer)) + "' is not at answer_start " +
           start->dump() + " of the context (" +
           (begin < length ? "'" + text_at(context, begin, code_points(answer)) + "' is"
                           : "the context has ended there") +
           ")" +
           (elsewhere == std::string::npos
                ? ", nor anywhere else in it"
                : format_text("; it is at {}",
                              code_points(std::string_view(context).substr(0, elsewhere)))));
}

}  // namespace finetune
