// SPDX-License-Identifier: MIT
#include "tokenizer/steps/normalizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "finetune/base/utf8.h"
#include "tokenizer/regex/pattern.h"
#include "tokenizer/steps/precompiled_charsmap.h"
#include "tokenizer/unicode/byte_level.h"
#include "tokenizer/unicode/char_properties.h"
#include "tokenizer/unicode/json_fields.h"
#include "tokenizer/unicode/unicode_forms.h"

namespace finetune::tokenizer {
namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 128; });
}

bool has_form(std::string_view text, UnicodeForm form) {
  return is_ascii(text) || (form == UnicodeForm::kNfc && is_surely_nfc(text));
}

void to_form(NormalizedText& text, UnicodeForm form) {
  if (has_form(text.text(), form)) return;
  text.transform(normalization_changes(text.text(), form));
}

void to_lower(NormalizedText& text) {
  std::vector<CharChange> changes;
  changes.reserve(text.text().size());
  for (size_t offset = 0; offset < text.text().size();) {
    const char32_t c = utf8::decode(text.text(), offset);
    if (c == 0x130) {
      changes.push_back({'i', 0});
      changes.push_back({0x307, 1});
    } else {
      changes.push_back({lower_char(c), 0});
    }
  }
  text.transform(changes);
}

class Form final : public Normalization {
 public:
  explicit Form(UnicodeForm form) : form_(form) {}
  void apply(NormalizedText& text) const override { to_form(text, form_); }
  bool leaves(std::string_view text) const override { return has_form(text, form_); }

 private:
  UnicodeForm form_;
};

class Lowercase final : public Normalization {
 public:
  void apply(NormalizedText& text) const override { to_lower(text); }
};

class StripAccents final : public Normalization {
 public:
  void apply(NormalizedText& text) const override {
    if (is_ascii(text.text())) return;
    text.filter([](char32_t c) { return !has_property(c, kMarkChar); });
  }
};

class Nmt final : public Normalization {
 public:
  void apply(NormalizedText& text) const override {
    text.filter([](char32_t c) {
      return !((c >= 0x1 && c <= 0x8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F ||
               c == 0x8F || c == 0x9F);
    });
    text.map([](char32_t c) {
      const bool space = c == 0x9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
                         (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 ||
                         c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
      return space ? U' ' : c;
    });
  }
};

class BertNormalization final : public Normalization {
 public:
  BertNormalization(const Json& json, const std::string& where)
      : clean_text_(bool_field(json, "clean_text", where)),
        chinese_(bool_field(json, "handle_chinese_chars", where)),
        lowercase_(bool_field(json, "lowercase", where)),
        accents_(optional_bool(json, "strip_accents", lowercase_, where)) {}

  void apply(NormalizedText& text) const override {
    if (clean_text_) clean(text);
    const bool plain = is_ascii(text.text());
    if (chinese_ && !plain) space_chinese(text);
    if (accents_ && !plain) {
      to_form(text, UnicodeForm::kNfd);
      text.filter([](char32_t c) { return !has_property(c, kNonspacingMark); });
    }
    if (lowercase_) to_lower(text);
  }

 private:
  static void clean(NormalizedText& text) {
    text.filter([](char32_t c) { return c != 0 && c != 0xFFFD && !has_property(c, kControlChar); });
    text.map([](char32_t c) { return char_class(c) == CharClass::kSpace ? U' ' : c; });
  }

  static void space_chinese(NormalizedText& text) {
    std::vector<CharChange> changes;
    for (size_t offset = 0; offset < text.text().size();) {
      const char32_t c = utf8::decode(text.text(), offset);
      if (is_chinese_char(c)) {
        changes.insert(changes.end(), {{' ', 0}, {c, 1}, {' ', 1}});
      } else {
        changes.push_back({c, 0});
      }
    }
    text.transform(changes);
  }

  bool clean_text_;
  bool chinese_;
  bool lowercase_;
  bool accents_;
};

class Prepend final : public Normalization {
 public:
  explicit Prepend(std::string content) : content_(std::move(content)) {}
  void apply(NormalizedText& text) const override { text.prepend(content_); }

 private:
  std::string content_;
};

class Strip final : public Normalization {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(NormalizedText& text) const override { text.strip(left_, right_); }

 private:
  bool left_;
  bool right_;
};

class Replace final : public Normalization {
 public:
  Replace(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(NormalizedText& text) const override {
    text.replace(pattern_.find_replaced(text.text(), content_), content_);
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class ByteLevel final : public Normalization {
 public:
  void apply(NormalizedText& text) const override { text.to_byte_level(); }
};

class Precompiled final : public Normalization {
 public:
  explicit Precompiled(PrecompiledCharsmap charsmap) : charsmap_(std::move(charsmap)) {}
  void apply(NormalizedText& text) const override {
    if (!text.empty()) charsmap_.normalize(text);
  }

 private:
  PrecompiledCharsmap charsmap_;
};

std::shared_ptr<const Normalization> read_normalization(const Json& json, const std::string& type,
                                                        const std::string& where) {
  if (type == "NFC") return std::make_shared<Form>(UnicodeForm::kNfc);
  if (type == "NFD") return std::make_shared<Form>(UnicodeForm::kNfd);
  if (type == "NFKC") return std::make_shared<Form>(UnicodeForm::kNfkc);
  if (type == "NFKD") return std::make_shared<Form>(UnicodeForm::kNfkd);
  if (type == "Lowercase") return std::make_shared<Lowercase>();
  if (type == "StripAccents") return std::make_shared<StripAccents>();
  if (type == "Nmt") return std::make_shared<Nmt>();
  if (type == "ByteLevel") return std::make_shared<ByteLevel>();
  if (type == "BertNormalizer") return std::make_shared<BertNormalization>(json, where);
  if (type == "Prepend") {
    return std::make_shared<Prepend>(short_string_field(json, "prepend", where));
  }
  if (type == "Strip") {
    return std::make_shared<Strip>(bool_field(json, "strip_left", where),
                                   bool_field(json, "strip_right", where));
  }
  if (type == "Replace") {
    return std::make_shared<Replace>(Pattern(field(json, "pattern", where), where + ": normalizer"),
                                     short_string_field(json, "content", where));
  }
  if (type == "Precompiled") {
    return std::make_shared<Precompiled>(
        PrecompiledCharsmap::from_base64(string_field(json, "precompiled_charsmap", where), where));
  }
  throw unsupported(where, "the normalizer '" + type + "'");
}

}  // namespace

Normalizer::Normalizer(const nlohmann::ordered_json& json, const std::string& where) {
  if (!json.is_null()) add(json, where);
}

void Normalizer::add(const nlohmann::ordered_json& json, const std::string& where) {
  const std::string type = string_field(json, "type", where);
  if (type == "Sequence") {
    for (const auto& item : array_field(json, "normalizers", where)) add(item, where);
  } else {
    steps_.push_back(read_normalization(json, type, where));
    kinds_.push_back(type == "Precompiled" ? type : json.dump());
  }
}

void Normalizer::apply(NormalizedText& text) const {
  // Limits the size: a chain of steps that each double the text could exhaust the memory.
  const size_t limit = std::max(kLongestReplaced, 4 * text.text().size());
  for (const auto& step : steps_) {
    step->apply(text);
    if (text.text().size() > limit) {
      throw Error(ErrorKind::kData,
                  "the normalizer of the tokenizer makes a text longer than 16 MiB; use another "
                  "tokenizer");
    }
  }
}

bool Normalizer::leaves(std::string_view text) const {
  return std::ranges::all_of(steps_, [&](const auto& step) { return step->leaves(text); });
}

std::string Normalizer::operator()(std::string_view text) const {
  NormalizedText result(text, 0, false);
  apply(result);
  return result.text();
}

}  // namespace finetune::tokenizer
