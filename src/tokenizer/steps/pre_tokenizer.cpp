// SPDX-License-Identifier: MIT
#include "tokenizer/steps/pre_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "finetune/base/utf8.h"
#include "tokenizer/regex/pattern.h"
#include "tokenizer/regex/text_cutter.h"
#include "tokenizer/unicode/byte_level.h"
#include "tokenizer/unicode/char_properties.h"
#include "tokenizer/unicode/json_fields.h"

namespace finetune::tokenizer {
namespace {

using Match = NormalizedText::Match;

// A match of a pattern in a word, or the text between matches.
struct Part {
  size_t begin;
  size_t end;
  bool match;
};

std::vector<Part> parts_of(const std::vector<Match>& matches, size_t size) {
  std::vector<Part> parts;
  size_t done = 0;
  for (const Match& match : matches) {
    if (done < match.begin) parts.push_back({done, match.begin, false});
    parts.push_back({match.begin, match.end, true});
    done = match.end;
  }
  if (done < size) parts.push_back({done, size, false});
  return parts;
}

std::vector<Match> find_all(std::string_view text, std::string_view string) {
  std::vector<Match> matches;
  for (size_t at = 0; (at = text.find(string, at)) != std::string_view::npos;) {
    matches.push_back({at, at + string.size()});
    at += string.size();
  }
  return matches;
}

// Returns each character for which accepts(char32_t) is true as a separate match.
template <class Accepts>
std::vector<Match> find_chars(std::string_view text, const Accepts& accepts) {
  std::vector<Match> matches;
  for (size_t offset = 0; offset < text.size();) {
    const size_t begin = offset;
    if (accepts(utf8::decode(text, offset))) matches.push_back({begin, offset});
  }
  return matches;
}

enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

Behavior read_behavior(const Json& json, const std::string& where) {
  const std::string name = string_field(json, "behavior", where);
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  throw unsupported(where, "a pre_tokenizer with the behavior '" + name + "'");
}

// Joins parts according to `behavior`.
std::vector<Part> join(std::vector<Part> parts, Behavior behavior) {
  if (behavior == Behavior::kIsolated) return parts;
  std::vector<Part> joined;
  if (behavior == Behavior::kRemoved) {
    std::copy_if(parts.begin(), parts.end(), std::back_inserter(joined),
                 [](const Part& part) { return !part.match; });
    return joined;
  }
  const bool backwards = behavior == Behavior::kMergedWithNext;
  if (backwards) std::reverse(parts.begin(), parts.end());
  bool previous = false;
  for (const Part& part : parts) {
    const bool joins =
        behavior == Behavior::kContiguous ? part.match == previous : part.match && !previous;
    if (joins && !joined.empty()) {
      if (backwards) {
        joined.back().begin = part.begin;
      } else {
        joined.back().end = part.end;
      }
    } else {
      joined.push_back(part);
    }
    previous = part.match;
  }
  if (backwards) std::reverse(joined.begin(), joined.end());
  return joined;
}

void cut(const NormalizedText& word, const std::vector<Part>& parts, Words& words) {
  for (const Part& part : parts) {
    if (part.begin < part.end) words.push_back(word.slice(part.begin, part.end));
  }
}

// Splits every word into the pieces of `cutter`.
void split_by(Words& words, const TextCutter& cutter) {
  Words result;
  std::vector<uint32_t> ends;
  for (const NormalizedText& word : words) {
    ends.clear();
    cutter.cut(word.text(), ends);
    size_t begin = 0;
    for (const size_t end : ends) {
      result.push_back(word.slice(begin, end));
      begin = end;
    }
  }
  words = std::move(result);
}

// Splits every word at the matches that find(std::string_view) returns.
template <class Find>
void split(Words& words, Behavior behavior, const Find& find) {
  Words result;
  for (const NormalizedText& word : words) {
    cut(word, join(parts_of(find(word.text()), word.text().size()), behavior), result);
  }
  words = std::move(result);
}

bool is_space(char32_t c) { return char_class(c) == CharClass::kSpace; }

// The table also contains ASCII symbols such as '$', as the tokenizers package does.
bool is_punctuation(char32_t c) { return has_property(c, kPunctuationChar); }

class Bert final : public PreTokenization {
 public:
  void apply(Words& words) const override {
    Words result;
    for (const NormalizedText& word : words) {
      cut(word, bert_parts(word.text()), result);
    }
    words = std::move(result);
  }

 private:
  static std::vector<Part> bert_parts(std::string_view text) {
    std::vector<Part> parts;
    size_t start = 0;
    for (size_t offset = 0; offset < text.size();) {
      const size_t here = offset;
      const char32_t c = utf8::decode(text, offset);
      const bool space = is_space(c);
      if (!space && !is_punctuation(c)) continue;
      if (start < here) parts.push_back({start, here, false});
      if (!space) parts.push_back({here, offset, true});
      start = offset;
    }
    if (start < text.size()) parts.push_back({start, text.size(), false});
    return parts;
  }
};

class WhitespaceSplit final : public PreTokenization {
 public:
  void apply(Words& words) const override {
    split(words, Behavior::kRemoved,
          [](std::string_view text) { return find_chars(text, is_space); });
  }
};

// \w+|[^\w\s]+
class Whitespace final : public PreTokenization {
 public:
  void apply(Words& words) const override {
    Words result;
    for (const NormalizedText& word : words) cut(word, runs(word.text()), result);
    words = std::move(result);
  }

 private:
  static std::vector<Part> runs(std::string_view text) {
    enum class Kind { kSpace, kWord, kOther };
    std::vector<Part> parts;
    Kind last = Kind::kSpace;
    for (size_t offset = 0; offset < text.size();) {
      const size_t here = offset;
      const char32_t c = utf8::decode(text, offset);
      const Kind kind = has_property(c, kWordChar) ? Kind::kWord
                        : is_space(c)              ? Kind::kSpace
                                                   : Kind::kOther;
      if (kind != Kind::kSpace) {
        if (kind == last) {
          parts.back().end = offset;
        } else {
          parts.push_back({here, offset, true});
        }
      }
      last = kind;
    }
    return parts;
  }
};

class CharDelimiterSplit final : public PreTokenization {
 public:
  explicit CharDelimiterSplit(char32_t delimiter) : delimiter_(delimiter) {}
  void apply(Words& words) const override {
    split(words, Behavior::kRemoved, [this](std::string_view text) {
      return find_chars(text, [this](char32_t c) { return c == delimiter_; });
    });
  }

 private:
  char32_t delimiter_;
};

class Digits final : public PreTokenization {
 public:
  explicit Digits(bool individual) : cutter_(individual ? make_digit_cutter() : nullptr) {}
  void apply(Words& words) const override {
    if (cutter_) {
      split_by(words, *cutter_);
      return;
    }
    split(words, Behavior::kContiguous, [](std::string_view text) {
      return find_chars(text, [](char32_t c) { return has_property(c, kNumericChar); });
    });
  }
  [[nodiscard]] const TextCutter* cutter() const override { return cutter_.get(); }

 private:
  std::shared_ptr<const TextCutter> cutter_;  // null if digits are not split
};

class Punctuation final : public PreTokenization {
 public:
  explicit Punctuation(Behavior behavior) : behavior_(behavior) {}
  void apply(Words& words) const override {
    split(words, behavior_, [](std::string_view text) { return find_chars(text, is_punctuation); });
  }

 private:
  Behavior behavior_;
};

class Split final : public PreTokenization {
 public:
  Split(Pattern pattern, Behavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void apply(Words& words) const override {
    if (const TextCutter* by_hand = cutter()) {
      split_by(words, *by_hand);
      return;
    }
    Words result;
    for (const NormalizedText& word : words) {
      std::vector<Part> parts = parts_of(pattern_.find_all(word.text()), word.text().size());
      if (invert_) {
        for (Part& part : parts) part.match = !part.match;
      }
      cut(word, join(std::move(parts), behavior_), result);
    }
    words = std::move(result);
  }
  [[nodiscard]] const TextCutter* cutter() const override {
    return behavior_ == Behavior::kIsolated ? pattern_.cutter() : nullptr;
  }

 private:
  Pattern pattern_;
  Behavior behavior_;
  bool invert_;
};

class Metaspace final : public PreTokenization {
 public:
  enum class Prepend { kAlways, kFirst, kNever };

  Metaspace(std::string replacement, Prepend prepend, bool splits)
      : replacement_(std::move(replacement)), prepend_(prepend), splits_(splits) {}

  void apply(Words& words) const override {
    Words result;
    for (NormalizedText& word : words) {
      word.replace(find_all(word.text(), " "), replacement_);
      const bool prepends =
          prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && word.begin() == 0);
      if (prepends && !word.text().starts_with(replacement_)) word.prepend(replacement_);
      if (splits_) {
        cut(word, parts(word.text()), result);
      } else {
        result.push_back(std::move(word));
      }
    }
    words = std::move(result);
  }

 private:
  [[nodiscard]] std::vector<Part> parts(std::string_view text) const {
    return join(parts_of(find_all(text, replacement_), text.size()), Behavior::kMergedWithNext);
  }

  std::string replacement_;  // one character
  Prepend prepend_;
  bool splits_;
};

class SpelledByteLevel final : public PreTokenization {
 public:
  explicit SpelledByteLevel(PreTokenizer::ByteLevel options) : options_(options) {}
  void apply(Words& words) const override {
    apply_byte_level(options_, words);
    for (NormalizedText& word : words) word.to_byte_level();
  }

 private:
  PreTokenizer::ByteLevel options_;
};

// Returns the string `key`, which must be a single character.
std::string read_char(const Json& json, const char* key, const std::string& where) {
  std::string text = string_field(json, key, where);
  size_t end = 0;
  if (!text.empty()) (void)utf8::decode(text, end);
  if (end == 0 || end != text.size()) {
    throw Error(ErrorKind::kData, where + ": '" + key + "' must be one character");
  }
  return text;
}

std::shared_ptr<const Metaspace> read_metaspace(const Json& json, const std::string& where,
                                                bool& needs_origins) {
  const std::string scheme = optional_string(json, "prepend_scheme", where).value_or("always");
  auto prepend = Metaspace::Prepend::kAlways;
  if (scheme == "first") {
    prepend = Metaspace::Prepend::kFirst;
    needs_origins = true;
  } else if (scheme == "never") {
    prepend = Metaspace::Prepend::kNever;
  } else if (scheme != "always") {
    throw unsupported(where, "a Metaspace with the prepend_scheme '" + scheme + "'");
  }
  if (!optional_bool(json, "add_prefix_space", true, where)) {
    if (scheme != "never" && json.contains("prepend_scheme")) {
      throw Error(ErrorKind::kData,
                  where + ": a Metaspace's add_prefix_space and prepend_scheme contradict");
    }
    prepend = Metaspace::Prepend::kNever;
  }
  return std::make_shared<Metaspace>(read_char(json, "replacement", where), prepend,
                                     optional_bool(json, "split", true, where));
}

}  // namespace

void apply_byte_level(const PreTokenizer::ByteLevel& options, Words& words) {
  if (options.add_prefix_space) {
    for (NormalizedText& word : words) {
      if (!word.text().starts_with(' ')) word.prepend(" ");
    }
  }
  if (options.use_regex) split_by(words, gpt2_cutter());
}

PreTokenizer::PreTokenizer(const nlohmann::ordered_json& json, const std::string& where) {
  if (!json.is_null()) add(json, where);
}

void PreTokenizer::add(const nlohmann::ordered_json& json, const std::string& where) {
  const std::string type = string_field(json, "type", where);
  if (type == "Sequence") {
    for (const auto& item : array_field(json, "pretokenizers", where)) add(item, where);
    return;
  }
  spell_bytes();
  kinds_.push_back(json.dump());
  if (type == "ByteLevel") {
    byte_level_ = {bool_field(json, "add_prefix_space", where),
                   optional_bool(json, "use_regex", true, where)};
  } else if (type == "BertPreTokenizer") {
    steps_.push_back(std::make_shared<Bert>());
  } else if (type == "WhitespaceSplit") {
    steps_.push_back(std::make_shared<WhitespaceSplit>());
  } else if (type == "Whitespace") {
    steps_.push_back(std::make_shared<Whitespace>());
  } else if (type == "CharDelimiterSplit") {
    const std::string delimiter = read_char(json, "delimiter", where);
    size_t offset = 0;
    steps_.push_back(std::make_shared<CharDelimiterSplit>(utf8::decode(delimiter, offset)));
  } else if (type == "Digits") {
    steps_.push_back(std::make_shared<Digits>(bool_field(json, "individual_digits", where)));
  } else if (type == "Punctuation") {
    const bool named = json.contains("behavior");
    steps_.push_back(
        std::make_shared<Punctuation>(named ? read_behavior(json, where) : Behavior::kIsolated));
  } else if (type == "Split") {
    steps_.push_back(
        std::make_shared<Split>(Pattern(field(json, "pattern", where), where + ": pre_tokenizer"),
                                read_behavior(json, where), bool_field(json, "invert", where)));
  } else if (type == "Metaspace") {
    steps_.push_back(read_metaspace(json, where, needs_origins_));
  } else {
    throw unsupported(where, "the pre_tokenizer '" + type + "'");
  }
}

void PreTokenizer::spell_bytes() {
  if (!byte_level_) return;
  steps_.push_back(std::make_shared<SpelledByteLevel>(*byte_level_));
  byte_level_.reset();
}

std::optional<std::vector<const TextCutter*>> PreTokenizer::cutters() const {
  std::vector<const TextCutter*> cutters;
  for (const auto& step : steps_) {
    cutters.push_back(step->cutter());
    if (cutters.back() == nullptr) return std::nullopt;
  }
  return cutters;
}

void PreTokenizer::apply(Words& words) const {
  for (const auto& step : steps_) step->apply(words);
}

Words PreTokenizer::cut(NormalizedText text) const {
  Words words;
  if (!text.empty()) words.push_back(std::move(text));
  apply(words);
  return words;
}

}  // namespace finetune::tokenizer
