// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "finetune/tokenizer/tokenizer.h"

namespace finetune::testing {

// One token per byte after RoBERTa's five special tokens: byte-level BPE without merges.
class ByteTokenizer : public Tokenizer {
 public:
  static constexpr int32_t kBos = 0, kPad = 1, kEos = 2, kUnk = 3, kMask = 4, kFirstByte = 5;

  explicit ByteTokenizer(bool with_mask = true) {
    special_.bos = special_.cls = {"<s>", kBos};
    special_.pad = {"<pad>", kPad};
    special_.eos = special_.sep = {"</s>", kEos};
    special_.unk = {"<unk>", kUnk};
    if (with_mask) special_.mask = {"<mask>", kMask};
  }

  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(kFirstByte + static_cast<unsigned char>(c));
    return ids;
  }
  [[nodiscard]] Tokens encode_with_literals(std::string_view text,
                                            std::span<const TextRange> /*literal*/) const override {
    Tokens tokens{.ids = encode(text), .ranges = {}};
    for (size_t i = 0; i < text.size(); ++i) {
      tokens.ranges.push_back({static_cast<int64_t>(i), static_cast<int64_t>(i + 1)});
    }
    return tokens;
  }
  // Prepends a space, like add_prefix_space of byte-level BPE.
  [[nodiscard]] std::vector<int32_t> encode_word(std::string_view word) const override {
    return word.empty() ? std::vector<int32_t>() : encode(" " + std::string(word));
  }
  // <s> first </s>, <s> first </s></s> second </s>
  [[nodiscard]] ModelText combine(std::span<const int32_t> first,
                                  std::optional<std::span<const int32_t>> second) const override {
    ModelText result;
    const auto special = [&](int32_t id) {
      result.ids.push_back(id);
      result.texts.push_back(ModelText::kSpecial);
      result.tokens.push_back(ModelText::kSpecial);
    };
    const auto text = [&](std::span<const int32_t> ids, int32_t which) {
      result.ids.insert(result.ids.end(), ids.begin(), ids.end());
      result.texts.insert(result.texts.end(), ids.size(), which);
      for (size_t i = 0; i < ids.size(); ++i) result.tokens.push_back(static_cast<int32_t>(i));
    };
    special(kBos);
    text(first, 0);
    special(kEos);
    if (second) {
      special(kEos);
      text(*second, 1);
      special(kEos);
    }
    result.token_types.assign(result.ids.size(), 0);
    return result;
  }
  using Tokenizer::num_special_tokens_to_add;
  [[nodiscard]] int64_t num_special_tokens_to_add(bool pair) const override { return pair ? 4 : 2; }
  [[nodiscard]] Sides sides() const override { return {}; }
  // White space and control characters start a word.
  [[nodiscard]] bool continues_word(int32_t id) const override { return id > kFirstByte + ' '; }
  [[nodiscard]] std::string decode(std::span<const int32_t> ids, bool) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (id >= kFirstByte) text += static_cast<char>(id - kFirstByte);
    }
    return text;
  }
  [[nodiscard]] int64_t size() const override { return kFirstByte + 256; }
  [[nodiscard]] std::optional<int32_t> token_to_id(std::string_view) const override { return {}; }
  [[nodiscard]] std::string id_to_token(int32_t) const override { return {}; }
  [[nodiscard]] bool is_special(int32_t id) const override { return id >= 0 && id < kFirstByte; }
  [[nodiscard]] const SpecialTokens& special_tokens() const override { return special_; }
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> files() const override {
    return {};
  }

 private:
  SpecialTokens special_;
};

}  // namespace finetune::testing
