// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "finetune/tokenizer/tokenizer.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/post_processor.h"

namespace finetune::tokenizer {

// Everything that a byte-level BPE tokenizer is made of, read from either kind of files.
struct ByteBpeParts {
  std::unique_ptr<BpeModel> model;
  Normalizer normalizer;
  bool add_prefix_space = false;
  bool use_regex = true;
  bool byte_level_decoder = true;  // without one, tokens are joined by spaces
  std::vector<AddedToken> added_tokens;
  PostProcessor post_processor;
  bool token_types = false;
  Tokenizer::Sides sides;
  SpecialTokens special_tokens;
  std::vector<std::pair<std::string, std::string>> files;
};

class ByteBpeTokenizer : public Tokenizer {
 public:
  explicit ByteBpeTokenizer(ByteBpeParts parts);

  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const override;
  [[nodiscard]] Tokens encode_with_ranges(std::string_view text) const override;
  [[nodiscard]] std::vector<int32_t> encode_word(std::string_view word) const override;
  [[nodiscard]] ModelText combine(std::span<const int32_t> first,
                                  std::optional<std::span<const int32_t>> second) const override;
  [[nodiscard]] int64_t num_special_tokens_to_add(bool pair) const override;
  [[nodiscard]] Sides sides() const override { return parts_.sides; }
  [[nodiscard]] bool continues_word(int32_t id) const override;
  [[nodiscard]] std::string decode(std::span<const int32_t> ids,
                                   bool skip_special_tokens) const override;
  [[nodiscard]] int64_t size() const override { return size_; }
  [[nodiscard]] std::optional<int32_t> token_to_id(std::string_view token) const override;
  [[nodiscard]] std::string id_to_token(int32_t id) const override;
  [[nodiscard]] bool is_special(int32_t id) const override;
  [[nodiscard]] const SpecialTokens& special_tokens() const override {
    return parts_.special_tokens;
  }
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> files() const override {
    return parts_.files;
  }

 private:
  void encode_normalized(std::string_view text, std::vector<int32_t>& ids) const;
  void encode_plain(std::string_view text, bool add_prefix_space, std::vector<int32_t>& ids) const;

  ByteBpeParts parts_;
  AddedTokens added_;
  int64_t size_ = 0;
};

}  // namespace finetune::tokenizer
