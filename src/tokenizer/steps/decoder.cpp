// SPDX-License-Identifier: MIT
#include "tokenizer/steps/decoder.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "finetune/base/utf8.h"
#include "tokenizer/regex/pattern.h"
#include "tokenizer/unicode/byte_level.h"
#include "tokenizer/unicode/json_fields.h"

namespace finetune::tokenizer {
namespace {

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  if (from.empty()) return std::string(text);
  std::string result;
  size_t start = 0;
  for (size_t found; (found = text.find(from, start)) != std::string_view::npos;) {
    result.append(text.substr(start, found - start)).append(to);
    start = found + from.size();
  }
  return result.append(text.substr(start));
}

class ByteLevelDecoding final : public Decoding {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens) {
      if (!append_token_bytes(token, bytes)) bytes += token;
    }
    tokens = {utf8::replace_invalid(bytes)};
  }
};

class Fuse final : public Decoding {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string text;
    for (const std::string& token : tokens) text += token;
    tokens = {std::move(text)};
  }
};

// Converts "<0x0A>" to a byte; consecutive bytes are decoded together, or become one U+FFFD each.
class ByteFallback final : public Decoding {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::vector<std::string> result;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (utf8::find_invalid(bytes) == std::string::npos) {
        result.push_back(bytes);
      } else {
        result.insert(result.end(), bytes.size(), "\xEF\xBF\xBD");
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const auto byte = byte_of(token)) {
        bytes += *byte;
      } else {
        flush();
        result.push_back(std::move(token));
      }
    }
    flush();
    tokens = std::move(result);
  }

 private:
  static std::optional<char> byte_of(const std::string& token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
    // Rust's parser accepts a sign before the digits.
    int value = token[3] == '+' ? 0 : digit(token[3]);
    const int low = digit(token[4]);
    if (value < 0 || low < 0) return std::nullopt;
    return static_cast<char>(16 * value + low);
  }
  static int digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  }
};

class MetaspaceDecoding final : public Decoding {
 public:
  MetaspaceDecoding(std::string replacement, bool drops_first)
      : replacement_(std::move(replacement)), drops_first_(drops_first) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = replace_all(tokens[i], replacement_, i == 0 && drops_first_ ? "" : " ");
    }
  }

 private:
  std::string replacement_;
  bool drops_first_;
};

class WordPiece final : public Decoding {
 public:
  WordPiece(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0 && tokens[i].starts_with(prefix_)) {
        tokens[i].erase(0, prefix_.size());
      } else if (i > 0) {
        tokens[i].insert(0, " ");
      }
      if (cleanup_) tokens[i] = clean_up(std::move(tokens[i]));
    }
  }

 private:
  static std::string clean_up(std::string text) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kRules = {
        {{" .", "."},
         {" ?", "?"},
         {" !", "!"},
         {" ,", ","},
         {" ' ", "'"},
         {" n't", "n't"},
         {" 'm", "'m"},
         {" do not", " don't"},
         {" 's", "'s"},
         {" 've", "'ve"},
         {" 're", "'re"}}};
    for (const auto& [from, to] : kRules) {
      if (text.find(from) != std::string::npos) text = replace_all(text, from, to);
    }
    return text;
  }

  std::string prefix_;
  bool cleanup_;
};

class BpeDecoder final : public Decoding {
 public:
  explicit BpeDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = replace_all(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
    }
  }

 private:
  std::string suffix_;
};

class ReplaceDecoding final : public Decoding {
 public:
  ReplaceDecoding(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      std::string result;
      size_t done = 0;
      for (const Pattern::Match& match : pattern_.find_replaced(token, content_)) {
        result.append(token, done, match.begin - done).append(content_);
        done = match.end;
      }
      token = result.append(token, done);
    }
  }

 private:
  Pattern pattern_;
  std::string content_;
};

// Removes up to `start` and `stop` copies of one character from the start and end of every token.
class StripDecoding final : public Decoding {
 public:
  StripDecoding(std::string content, size_t start, size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (size_t i = 0; i < start_ && rest.starts_with(content_); ++i) {
        rest.remove_prefix(content_.size());
      }
      for (size_t i = 0; i < stop_ && rest.ends_with(content_); ++i) {
        rest.remove_suffix(content_.size());
      }
      token = std::string(rest);
    }
  }

 private:
  std::string content_;
  size_t start_;
  size_t stop_;
};

size_t read_count(const Json& json, const char* key, const std::string& where) {
  const Json& value = field(json, key, where);
  if (!value.is_number_integer() || value < 0 || value > 1'000'000) {
    throw Error(ErrorKind::kData, where + ": '" + key + "' must be a whole number from 0");
  }
  return value.get<size_t>();
}

std::shared_ptr<const Decoding> read_decoding(const Json& json, const std::string& type,
                                              const std::string& where) {
  if (type == "ByteLevel") return std::make_shared<ByteLevelDecoding>();
  if (type == "Fuse") return std::make_shared<Fuse>();
  if (type == "ByteFallback") return std::make_shared<ByteFallback>();
  if (type == "Metaspace") {
    const bool never = optional_string(json, "prepend_scheme", where).value_or("") == "never" ||
                       !optional_bool(json, "add_prefix_space", true, where);
    return std::make_shared<MetaspaceDecoding>(string_field(json, "replacement", where), !never);
  }
  if (type == "WordPiece") {
    return std::make_shared<WordPiece>(string_field(json, "prefix", where),
                                       bool_field(json, "cleanup", where));
  }
  if (type == "BPEDecoder") {
    return std::make_shared<BpeDecoder>(string_field(json, "suffix", where));
  }
  if (type == "Replace") {
    return std::make_shared<ReplaceDecoding>(
        Pattern(field(json, "pattern", where), where + ": decoder"),
        short_string_field(json, "content", where));
  }
  if (type == "Strip") {
    std::string content = string_field(json, "content", where);
    if (content.empty()) throw Error(ErrorKind::kData, where + ": a Strip of nothing");
    return std::make_shared<StripDecoding>(std::move(content), read_count(json, "start", where),
                                           read_count(json, "stop", where));
  }
  throw unsupported(where, "the decoder '" + type + "'");
}

}  // namespace

Decoder::Decoder(const nlohmann::ordered_json& json, const std::string& where) {
  if (json.is_null()) return;
  given_ = true;
  add(json, where);
}

void Decoder::add(const nlohmann::ordered_json& json, const std::string& where) {
  const std::string type = string_field(json, "type", where);
  if (type == "Sequence") {
    for (const auto& item : array_field(json, "decoders", where)) add(item, where);
  } else {
    steps_.push_back(read_decoding(json, type, where));
  }
}

std::string Decoder::operator()(std::vector<std::string> tokens) const {
  for (const auto& step : steps_) step->apply(tokens);
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && !given_) text += ' ';
    text += tokens[i];
  }
  return text;
}

}  // namespace finetune::tokenizer
