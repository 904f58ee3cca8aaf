// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "finetune/tokenizer/tokenizer.h"

namespace finetune::testing {

// A token for each byte behind RoBERTa's five special tokens: byte-level BPE without merges.
class ByteTokenizer final : public Tokenizer {
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
  [[nodiscard]] std::vector<int32_t> add_special_tokens(
      std::span<const int32_t> ids) const override {
    std::vector<int32_t> result = {kBos};
    result.insert(result.end(), ids.begin(), ids.end());
    result.push_back(kEos);
    return result;
  }
  [[nodiscard]] int64_t num_special_tokens_to_add() const override { return 2; }
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
