// SPDX-License-Identifier: MIT
#include "finetune/base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "finetune/base/file_system.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// Builds the value while it enforces what nlohmann's own parser does not: bounded depth and no
// duplicate keys.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string where, int max_depth) : where_(std::move(where)), max_depth_(max_depth) {}

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

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    position_ = position;
    return reject("is not valid JSON");
  }

  // Root value; where parsing failed, `message()` says why and `position()` (1-based, 0 unknown)
  // where.
  Json& root() { return root_; }
  [[nodiscard]] const std::string& message() const { return message_; }
  [[nodiscard]] size_t position() const { return position_; }

 private:
  struct Level {
    Json value;
    std::string key;
    std::unordered_set<std::string> keys;
  };

  bool reject(std::string message) {
    message_ = std::move(message);
    return false;
  }

  bool put(Json value) {
    if (levels_.empty()) {
      root_ = std::move(value);
    } else if (levels_.back().value.is_array()) {
      levels_.back().value.push_back(std::move(value));
    } else {
      // The level's own set has seen the key, so the linear search of operator[] is not needed.
      levels_.back().value.get_ref<Json::object_t&>().emplace_back(levels_.back().key,
                                                                   std::move(value));
    }
    return true;
  }

  bool open(Json container) {
    if (static_cast<int>(levels_.size()) >= max_depth_) {
      return reject("is nested deeper than " + std::to_string(max_depth_) + " levels");
    }
    levels_.push_back({std::move(container), {}, {}});
    return true;
  }

  bool close() {
    Json value = std::move(levels_.back().value);
    levels_.pop_back();
    return put(std::move(value));
  }

  std::string where_;
  int max_depth_;
  Json root_;
  std::vector<Level> levels_;
  std::string message_;
  size_t position_ = 0;
};

// Python's json writes NaN, Infinity and -Infinity outside strings; JSON has null.
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

}  // namespace

Json parse_json(std::string_view text, const std::string& where, ErrorKind kind,
                const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    throw Error(kind, where + ": has " + std::to_string(text.size()) + " bytes, more than the " +
                          std::to_string(limits.max_bytes) + " that such a file may have");
  }
  const std::string cleaned = limits.allow_nan ? without_nan(text) : std::string();
  const std::string_view source = limits.allow_nan ? std::string_view(cleaned) : text;
  Builder builder(where, limits.max_depth);
  if (!Json::sax_parse(source.begin(), source.end(), &builder)) {
    std::string place = where;
    if (builder.position() > 0) {
      const size_t end = std::min(builder.position() - 1, source.size());
      place += ":" + std::to_string(
                         1 + std::count(source.begin(),
                                        source.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    }
    throw Error(kind, place + ": " + builder.message());
  }
  return std::move(builder.root());
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
  // Where repr() changes to an exponent.
  if (exponent >= -4 && exponent < 16) {
    result = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed);
  }
  std::string text(buffer, result.ptr);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

}  // namespace finetune
