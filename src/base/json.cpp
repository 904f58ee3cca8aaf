// SPDX-License-Identifier: MIT
#include "finetune/base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "finetune/base/file_system.h"
#include "finetune/base/json_list.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// Returns what the parser expected, in JSON's terms; empty if unknown.
std::string expected_by(const std::string& reason) {
  const size_t begin = reason.find("; expected ");
  if (begin == std::string::npos) return "";
  const std::string word = reason.substr(begin + 11);
  if (word == "string literal") return "a key in double quotes";
  if (word == "end of input") return "the end of the text";
  return word;
}

// `end` is the index of the byte at which the parser stopped.
std::string describe_fault(std::string_view text, size_t end, const std::string& reason) {
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

// `position`: where the parser stopped, 1-based; `reason`: its message.
JsonFault find_fault(std::string_view text, size_t position, const std::string& reason) {
  const size_t end = std::min(std::max<size_t>(position, 1) - 1, text.size());
  const std::string_view before = text.substr(0, end);
  const size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
  const auto is_lead = [](char byte) { return (byte & 0xC0) != 0x80; };
  return {.problem = "is not valid JSON",
          .line = 1 + std::ranges::count(before, '\n'),
          .column = 1 + std::ranges::count_if(before.substr(line_begin), is_lead),
          .found = describe_fault(text, end, reason)};
}

// Builds the value and enforces what nlohmann's parser does not: bounded depth and no duplicate
// keys.
class Builder : public nlohmann::json_sax<Json> {
 public:
  // Where the items of a list are not kept.
  struct TakenList {
    const std::string& name;
    const std::function<void(Json&&)>& take;
  };

  Builder(std::string_view text, int max_depth, const TakenList* taken)
      : text_(text), max_depth_(max_depth), taken_(taken) {}

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return reject("binary values are not JSON"); }

  bool start_object(size_t) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (!levels_.back().keys.insert(name).second)
      return reject("the key '" + name + "' is there twice");
    levels_.back().key = std::move(name);
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::json::exception& problem) override {
    fault_ = find_fault(text_, position, problem.what());
    return false;
  }

  // Returns the parsed value if parsing did not fail.
  Json& root() { return root_; }
  JsonFault& fault() { return fault_; }

 private:
  struct Level {
    Json value;
    std::string key;
    std::unordered_set<std::string> keys;
  };

  bool reject(std::string problem) {
    fault_.problem = std::move(problem);
    return false;
  }

  bool put(Json value) {
    if (levels_.empty()) {
      root_ = std::move(value);
    } else if (levels_.back().value.is_array()) {
      const bool is_taken =
          taken_ != nullptr && levels_.size() == 2 && levels_[0].key == taken_->name;
      if (is_taken) {
        taken_->take(std::move(value));
      } else {
        levels_.back().value.push_back(std::move(value));
      }
    } else {
      // The level's set has checked the key, so the linear search of operator[] is not needed.
      levels_.back().value.get_ref<Json::object_t&>().emplace_back(levels_.back().key,
                                                                   std::move(value));
    }
    return true;
  }

  bool open(Json container) {
    if (static_cast<int>(levels_.size()) >= max_depth_) {
      return reject(format_text("is nested deeper than {} levels", max_depth_));
    }
    levels_.push_back({std::move(container), {}, {}});
    return true;
  }

  bool close() {
    Json value = std::move(levels_.back().value);
    levels_.pop_back();
    return put(std::move(value));
  }

  std::string_view text_;
  int max_depth_;
  const TakenList* taken_;
  Json root_;
  std::vector<Level> levels_;
  JsonFault fault_;
};

// Replaces NaN, Infinity and -Infinity outside strings, which Python's json writes, by null.
std::string without_nan(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      result += c;
      if (c == '\\' && i + 1 < text.size()) result += text[++i];
      if (c == '"') in_string = false;
      continue;
    }
    const std::string_view rest = text.substr(i);
    size_t skip = 0;
    for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
      if (rest.starts_with(word)) {
        skip = word.size();
        break;
      }
    }
    if (skip > 0) {
      result += "null";
      i += skip - 1;
      continue;
    }
    if (c == '"') in_string = true;
    result += c;
  }
  return result;
}

Json parse(std::string_view text, const std::string& where, ErrorKind kind,
           const JsonLimits& limits, const Builder::TakenList* taken) {
  if (text.size() > limits.max_bytes) {
    throw JsonError(
        kind, where,
        {.problem = format_text("has {} bytes, more than the {} that such a file may have",
                                text.size(), limits.max_bytes)});
  }
  const bool has_nan = limits.allow_nan && (text.find("NaN") != std::string_view::npos ||
                                            text.find("Infinity") != std::string_view::npos);
  const std::string cleaned = has_nan ? without_nan(text) : std::string();
  const std::string_view source = has_nan ? std::string_view(cleaned) : text;
  Builder builder(source, limits.max_depth, taken);
  if (!Json::sax_parse(source.begin(), source.end(), &builder)) {
    throw JsonError(kind, where, std::move(builder.fault()));
  }
  return std::move(builder.root());
}

}  // namespace

JsonError::JsonError(ErrorKind kind, const std::string& where, JsonFault fault)
    : Error(kind, fault.line > 0 ? format_text("{}:{}: {}", where, fault.line, fault.problem)
                                 : where + ": " + fault.problem),
      fault_(std::move(fault)) {}

Json parse_json(std::string_view text, const std::string& where, ErrorKind kind,
                const JsonLimits& limits) {
  return parse(text, where, kind, limits, nullptr);
}

Json parse_json_with_list(std::string_view text, const std::string& where, const std::string& list,
                          const std::function<void(Json&&)>& take, ErrorKind kind,
                          const JsonLimits& limits) {
  const Builder::TakenList taken = {.name = list, .take = take};
  return parse(text, where, kind, limits, &taken);
}

Json read_json_file(const std::string& path, ErrorKind kind, const JsonLimits& limits) {
  std::string text;
  try {
    text = FileSystem::local().read_all(path, limits.max_bytes);
  } catch (const Error& error) {
    throw Error(kind, error.what());
  }
  return parse_json(text, path, kind, limits);
}

std::string format_double(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[32];
  auto result =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view scientific(buffer, static_cast<size_t>(result.ptr - buffer));
  const int exponent = std::stoi(std::string(scientific.substr(scientific.find('e') + 1)));
  // The range in which repr() uses no exponent.
  if (exponent >= -4 && exponent < 16) {
    result = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed);
  }
  std::string text(buffer, result.ptr);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

}  // namespace finetune
