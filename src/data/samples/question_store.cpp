// SPDX-License-Identifier: MIT
#include "data/samples/question_store.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "finetune/base/error.h"

namespace finetune {
namespace {

using Content = QuestionAnsweringDataset::Content;
using Window = QuestionAnsweringDataset::Window;

static_assert(sizeof(Window) == 4 * sizeof(int64_t) && sizeof(TextRange) == 2 * sizeof(int64_t),
              "rows of numbers");

class Writer {
 public:
  void add(int64_t number) {
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof(number));
  }
  void add(const std::string& text) {
    add(std::ssize(text));
    bytes_ += text;
  }
  template <class Value>
  void add(const std::vector<Value>& values) {
    add(std::ssize(values));
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value));
  }
  [[nodiscard]] std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  [[noreturn]] static void fail() {
    throw Error(ErrorKind::kData, "the questions beside tokenised data are damaged");
  }
  int64_t number() {
    int64_t value = 0;
    std::memcpy(&value, take(1, sizeof(value)).data(), sizeof(value));
    return value;
  }
  // Reads a number of items that take at least `least` bytes each.
  int64_t count(int64_t least) {
    const int64_t value = number();
    if (value < 0 || value > std::ssize(bytes_) / least) fail();
    return value;
  }
  std::string text() { return std::string(take(count(1), 1)); }
  template <class Value>
  std::vector<Value> list() {
    std::vector<Value> values(static_cast<size_t>(count(sizeof(Value))));
    const std::string_view from = take(std::ssize(values), sizeof(Value));
    if (!from.empty()) std::memcpy(values.data(), from.data(), from.size());
    return values;
  }
  [[nodiscard]] bool at_end() const { return bytes_.empty(); }

 private:
  std::string_view take(int64_t count, size_t width) {
    const size_t size = static_cast<size_t>(count) * width;
    if (size > bytes_.size()) fail();
    const std::string_view part = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return part;
  }

  std::string_view bytes_;
};

void check(const Content& content, int64_t samples) {
  bool is_right = std::ssize(content.windows) == samples;
  int64_t before = 0;
  for (const Window& window : content.windows) {
    const auto ranges = std::ssize(content.ranges);
    is_right = is_right && window.question >= before &&
               window.question < std::ssize(content.questions) && window.first_token >= 0 &&
               window.tokens >= 0 && window.first_context >= 0 && window.first_context <= ranges &&
               window.tokens <= ranges - window.first_context;
    if (!is_right) Reader::fail();
    before = window.question;
    const auto size = std::ssize(content.questions[static_cast<size_t>(window.question)].context);
    for (int64_t i = window.first_context; i < window.first_context + window.tokens; ++i) {
      const TextRange& range = content.ranges[static_cast<size_t>(i)];
      if (range.begin < 0 || range.begin > range.end || range.end > size) Reader::fail();
    }
  }
  if (!is_right) Reader::fail();
}

}  // namespace

std::string encode_questions(const Content& content) {
  Writer writer;
  writer.add(std::ssize(content.questions));
  for (const Question& question : content.questions) {
    for (const std::string* text : {&question.id, &question.question, &question.context}) {
      writer.add(*text);
    }
    writer.add(std::ssize(question.answers));
    for (const std::string& answer : question.answers) writer.add(answer);
  }
  writer.add(content.windows);
  writer.add(content.ranges);
  return writer.take();
}

Content decode_questions(std::string_view bytes, int64_t samples) {
  constexpr int64_t kNumber = sizeof(int64_t);
  Reader reader(bytes);
  Content content;
  content.questions.resize(static_cast<size_t>(reader.count(4 * kNumber)));
  for (Question& question : content.questions) {
    for (std::string* text : {&question.id, &question.question, &question.context}) {
      *text = reader.text();
    }
    question.answers.resize(static_cast<size_t>(reader.count(kNumber)));
    for (std::string& answer : question.answers) answer = reader.text();
  }
  content.windows = reader.list<Window>();
  content.ranges = reader.list<TextRange>();
  if (!reader.at_end()) Reader::fail();
  check(content, samples);
  return content;
}

}  // namespace finetune
