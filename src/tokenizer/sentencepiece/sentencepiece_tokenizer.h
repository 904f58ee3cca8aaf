// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "finetune/tokenizer/tokenizer.h"
#include "tokenizer/pipeline/added_tokens.h"
#include "tokenizer/pipeline/special_names.h"
#include "tokenizer/steps/post_processor.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace finetune::tokenizer {

// A SentencePiece model of a class without a pipeline (sentencepiece_files.h), run by the library:
// the model's own ids, no special tokens around a text.
class SentencePieceTokenizer : public Tokenizer {
 public:
  // `model` is the content of the file `file_name` in the folder. Throws Error(kData).
  SentencePieceTokenizer(std::string model, const std::string& file_name, TokenizerFolder folder);
  ~SentencePieceTokenizer() override;
  SentencePieceTokenizer(const SentencePieceTokenizer&) = delete;
  SentencePieceTokenizer& operator=(const SentencePieceTokenizer&) = delete;

  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const override;
  [[nodiscard]] Tokens encode_with_literals(std::string_view text,
                                            std::span<const TextRange> literal) const override;
  [[nodiscard]] std::vector<int32_t> encode_word(std::string_view word) const override {
    return encode(word);
  }
  [[nodiscard]] ModelText combine(std::span<const int32_t> first,
                                  std::optional<std::span<const int32_t>> second) const override;
  [[nodiscard]] int64_t num_special_tokens_to_add(bool /*pair*/) const override { return 0; }
  [[nodiscard]] Sides sides() const override { return sides_; }
  [[nodiscard]] bool continues_word(int32_t id) const override;
  [[nodiscard]] std::string decode(std::span<const int32_t> ids,
                                   bool skip_special_tokens) const override;
  [[nodiscard]] int64_t size() const override;
  [[nodiscard]] std::optional<int32_t> token_to_id(std::string_view token) const override;
  [[nodiscard]] std::string id_to_token(int32_t id) const override;
  [[nodiscard]] bool is_special(int32_t id) const override;
  [[nodiscard]] const SpecialTokens& special_tokens() const override { return special_tokens_; }
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> files() const override {
    return files_;
  }

 private:
  void name_special_tokens(TokenizerFolder& folder);
  void append_ids(std::string_view text, std::vector<int32_t>& ids) const;

  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  int32_t pieces_ = 0;
  int32_t unk_ = 0;  // the model's own id
  SpecialTokens special_tokens_;
  Sides sides_;
  AddedTokens added_;
  std::vector<std::pair<std::string, std::string>> files_;
};

}  // namespace finetune::tokenizer
