// SPDX-License-Identifier: MIT
#include "finetune/base/json_fault.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace finetune {
namespace {

// Checks only; keeps where and why the parser stopped.
class FaultFinder : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool key(string_t&) override { return true; }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::json::exception& problem) override {
    position_ = position;
    reason_ = problem.what();
    return false;
  }

  [[nodiscard]] size_t position() const { return position_; }  // 1-based; 0: not known
  [[nodiscard]] const std::string& reason() const { return reason_; }

 private:
  size_t position_ = 0;
  std::string reason_;
};

// What the parser expected, in the words of JSON; empty where it does not say.
std::string expected_by(const std::string& reason) {
  const size_t begin = reason.find("; expected ");
  if (begin == std::string::npos) return "";
  const std::string word = reason.substr(begin + 11);
  if (word == "string literal") return "a key in double quotes";
  if (word == "end of input") return "the end of the text";
  return word;
}

// `end` is the index of the byte at which the parser stopped.
std::string describe(std::string_view text, size_t end, const std::string& reason) {
  if (reason.find("missing closing quote") != std::string::npos) {
    return "a string lacks its closing double quote";
  }
  if (reason.find("control character") != std::string::npos) {
    return "a string holds a line end or another control character; write a line end as \\n";
  }
  const std::string expected = expected_by(reason);
  const std::string where = expected.empty() ? "" : ", where " + expected + " is expected";
  if (end >= text.size()) return "the text ends here" + where;
  const char byte = text[end];
  const bool is_printable = byte > ' ' && byte < 0x7F;
  const std::string found = is_printable ? std::string("found '") + byte + "'" + where
                                         : "found a character that cannot be here";
  if (byte == '/' || byte == '#') return found + " (JSON has no comments)";
  if (byte == '\'') return found + " (strings have double quotes)";
  const size_t before = text.substr(0, end).find_last_not_of(" \t\r\n");
  const bool ends_list = byte == '}' || byte == ']';
  if (ends_list && before != std::string_view::npos && text[before] == ',') {
    return found + " (remove the comma before it)";
  }
  return found;
}

}  // namespace

std::optional<JsonFault> find_json_fault(std::string_view text) {
  FaultFinder finder;
  if (nlohmann::json::sax_parse(text.begin(), text.end(), &finder)) return std::nullopt;
  const size_t end = std::min(std::max<size_t>(finder.position(), 1) - 1, text.size());
  const std::string_view before = text.substr(0, end);
  const size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
  const auto is_lead = [](char byte) { return (byte & 0xC0) != 0x80; };
  return JsonFault{
      .line = 1 + std::count(before.begin(), before.end(), '\n'),
      .column = 1 + std::count_if(before.begin() + static_cast<std::ptrdiff_t>(line_begin),
                                  before.end(), is_lead),
      .found = describe(text, end, finder.reason())};
}

}  // namespace finetune
