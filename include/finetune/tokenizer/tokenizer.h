// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace finetune {

// The special tokens, found by name in the tokenizer's own files, never by number. Ids are set
// where the vocabulary has the token.
struct SpecialTokens {
  struct Token {
    std::string text;
    int32_t id = -1;
  };
  std::optional<Token> bos, eos, unk, sep, pad, cls, mask;
};

// Text <-> ids. Immutable once made, so safe to share between threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids of `text` without the post-processor's special tokens; special tokens that stand in the
  // text become their ids, as transformers does. Requires: well-formed UTF-8.
  [[nodiscard]] virtual std::vector<int32_t> encode(std::string_view text) const = 0;

  // The post-processor: for RoBERTa <s> ids </s>.
  [[nodiscard]] virtual std::vector<int32_t> add_special_tokens(
      std::span<const int32_t> ids) const = 0;
  // How many tokens add_special_tokens() adds to one text.
  [[nodiscard]] virtual int64_t num_special_tokens_to_add() const = 0;

  [[nodiscard]] virtual std::string decode(std::span<const int32_t> ids,
                                           bool skip_special_tokens) const = 0;

  // 1 + the largest id, added tokens included (transformers' len(tokenizer) where ids are dense).
  [[nodiscard]] virtual int64_t size() const = 0;
  [[nodiscard]] virtual std::optional<int32_t> token_to_id(std::string_view token) const = 0;
  // The token as the vocabulary spells it ("Ġsaluton"); empty for an id that is not used.
  [[nodiscard]] virtual std::string id_to_token(int32_t id) const = 0;
  [[nodiscard]] virtual bool is_special(int32_t id) const = 0;
  [[nodiscard]] virtual const SpecialTokens& special_tokens() const = 0;

  // Name and content of every file that makes this tokenizer, as they go into a checkpoint
  // (tokenizer.json, tokenizer_config.json, ...).
  [[nodiscard]] virtual std::vector<std::pair<std::string, std::string>> files() const = 0;
};

// Loads a folder that holds tokenizer.json (executed as it says), or vocab.json + merges.txt, or
// sentencepiece.bpe.model / spiece.model. Throws Error(kData) that names the folder and what was
// looked for, or the file and what in it cannot be used (a component that is not supported is
// named; an outside analyser such as MeCab is refused by name).
[[nodiscard]] std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& folder);

}  // namespace finetune
