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

// Bytes [begin, end) of the text that was given to the tokenizer.
struct TextRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const TextRange&) const = default;
};

// A text's tokens before the post-processor, with the range of each in the original text:
// transformers' offset_mapping, in bytes (transformers counts code points).
struct Tokens {
  std::vector<int32_t> ids;
  std::vector<TextRange> ranges;  // one for each id
};

// One or two texts as the model takes them: what the post-processor makes of their tokens. The
// four lists are equally long.
struct ModelText {
  static constexpr int32_t kSpecial = -1;
  std::vector<int32_t> ids;
  std::vector<uint8_t> token_types;  // token_type_ids
  std::vector<int32_t> texts;        // sequence_ids: which text, 0 or 1; kSpecial where none
  std::vector<int32_t> tokens;       // which token of that text; kSpecial where none
};

// Text <-> ids. Immutable once made, so safe to share between threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids of `text` without the post-processor's special tokens; special tokens in the text become
  // their ids, as in transformers. Requires: valid UTF-8.
  [[nodiscard]] virtual std::vector<int32_t> encode(std::string_view text) const = 0;

  // The same ids, with the range of each token in `text`.
  [[nodiscard]] virtual Tokens encode_with_ranges(std::string_view text) const = 0;
  // Ids of a word of a text that is given as words: transformers' is_split_into_words, with
  // add_prefix_space for byte-level BPE. An empty word may have none.
  [[nodiscard]] virtual std::vector<int32_t> encode_word(std::string_view word) const = 0;

  // The post-processor: for RoBERTa <s> first </s>, or <s> first </s></s> second </s>. Token types
  // are 0 everywhere where the tokenizer's model_input_names leave token_type_ids out (RoBERTa).
  [[nodiscard]] virtual ModelText combine(std::span<const int32_t> first,
                                          std::optional<std::span<const int32_t>> second) const = 0;
  // How many tokens combine() adds to one text or to a pair.
  [[nodiscard]] virtual int64_t num_special_tokens_to_add(bool pair) const = 0;
  [[nodiscard]] int64_t num_special_tokens_to_add() const {
    return num_special_tokens_to_add(false);
  }
  // combine()'s ids for one text.
  [[nodiscard]] std::vector<int32_t> add_special_tokens(std::span<const int32_t> ids) const {
    return combine(ids, std::nullopt).ids;
  }

  // tokenizer_config.json's padding_side and truncation_side; right where it does not say.
  struct Sides {
    bool pad_left = false;
    bool truncate_left = false;
  };
  [[nodiscard]] virtual Sides sides() const = 0;

  [[nodiscard]] virtual std::string decode(std::span<const int32_t> ids,
                                           bool skip_special_tokens) const = 0;

  // 1 + the largest id, added tokens included (transformers' len(tokenizer) where ids are dense).
  [[nodiscard]] virtual int64_t size() const = 0;
  [[nodiscard]] virtual std::optional<int32_t> token_to_id(std::string_view token) const = 0;
  // The token as the vocabulary spells it ("Ġsaluton"); empty for an id that is not used.
  [[nodiscard]] virtual std::string id_to_token(int32_t id) const = 0;
  [[nodiscard]] virtual bool is_special(int32_t id) const = 0;
  [[nodiscard]] virtual const SpecialTokens& special_tokens() const = 0;
  // Whether the token continues a word: "##x" of WordPiece; elsewhere what has no "Ġ" or "▁" in
  // front. False for special tokens and ids that are not used.
  [[nodiscard]] virtual bool continues_word(int32_t id) const = 0;

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
