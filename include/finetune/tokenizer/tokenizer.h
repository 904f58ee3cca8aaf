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

// The special tokens, found by name in the tokenizer's files, never by id. The id is set if the
// vocabulary contains the token.
struct SpecialTokens {
  struct Token {
    std::string text;
    int32_t id = -1;
  };
  std::optional<Token> bos, eos, unk, sep, pad, cls, mask;
};

// Bytes [begin, end) of the tokenizer's input text.
struct TextRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const TextRange&) const = default;
};

// A text's tokens before the post-processor, each with its range in the original text:
// transformers' offset_mapping, but in bytes instead of code points.
struct Tokens {
  std::vector<int32_t> ids;
  std::vector<TextRange> ranges;  // one for each id
};

// One or two texts after the post-processor, as the model takes them. The four lists have equal
// lengths.
struct ModelText {
  static constexpr int32_t kSpecial = -1;
  std::vector<int32_t> ids;
  std::vector<uint8_t> token_types;  // token_type_ids
  std::vector<int32_t> texts;        // sequence_ids: index of the text, 0 or 1; kSpecial if none
  std::vector<int32_t> tokens;       // index of the token in that text; kSpecial if none
};

// Converts text to ids and back. Immutable, so safe to share between threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids of `text` without the post-processor's special tokens; special tokens in the text become
  // their ids, as in transformers. Requires: valid UTF-8.
  [[nodiscard]] virtual std::vector<int32_t> encode(std::string_view text) const = 0;

  // The same ids, with the range of each token in `text`.
  [[nodiscard]] Tokens encode_with_ranges(std::string_view text) const {
    return encode_with_literals(text, {});
  }
  // The same, but special tokens are not recognised in the bytes of `literal` (ascending,
  // disjoint), where they are encoded as the characters that spell them.
  [[nodiscard]] virtual Tokens encode_with_literals(std::string_view text,
                                                    std::span<const TextRange> literal) const = 0;
  // Returns the ids of one word of pre-split text: transformers' is_split_into_words, with
  // add_prefix_space for byte-level BPE. An empty word may have no ids.
  [[nodiscard]] virtual std::vector<int32_t> encode_word(std::string_view word) const = 0;

  // Applies the post-processor: for RoBERTa <s> first </s>, or <s> first </s></s> second </s>. All
  // token types are 0 if the tokenizer's model_input_names lack token_type_ids (RoBERTa).
  [[nodiscard]] virtual ModelText combine(std::span<const int32_t> first,
                                          std::optional<std::span<const int32_t>> second) const = 0;
  // Returns how many tokens combine() adds to one text or to a pair.
  [[nodiscard]] virtual int64_t num_special_tokens_to_add(bool pair) const = 0;
  [[nodiscard]] int64_t num_special_tokens_to_add() const {
    return num_special_tokens_to_add(false);
  }
  // Returns combine()'s ids for one text.
  [[nodiscard]] std::vector<int32_t> add_special_tokens(std::span<const int32_t> ids) const {
    return combine(ids, std::nullopt).ids;
  }

  // tokenizer_config.json's padding_side and truncation_side; right by default.
  struct Sides {
    bool pad_left = false;
    bool truncate_left = false;
  };
  [[nodiscard]] virtual Sides sides() const = 0;

  [[nodiscard]] virtual std::string decode(std::span<const int32_t> ids,
                                           bool skip_special_tokens) const = 0;

  // 1 + the largest id, added tokens included (equals transformers' len(tokenizer) if ids are
  // dense).
  [[nodiscard]] virtual int64_t size() const = 0;
  [[nodiscard]] virtual std::optional<int32_t> token_to_id(std::string_view token) const = 0;
  // Returns the token as spelled in the vocabulary ("Ġsaluton"); empty for an unused id.
  [[nodiscard]] virtual std::string id_to_token(int32_t id) const = 0;
  [[nodiscard]] virtual bool is_special(int32_t id) const = 0;
  [[nodiscard]] virtual const SpecialTokens& special_tokens() const = 0;
  // Whether the token continues a word: "##x" of WordPiece; in other models, a token without
  // leading "Ġ" or "▁". False for special tokens and unused ids.
  [[nodiscard]] virtual bool continues_word(int32_t id) const = 0;

  // Returns name and content of every file of this tokenizer, as stored in a checkpoint
  // (tokenizer.json, tokenizer_config.json, ...).
  [[nodiscard]] virtual std::vector<std::pair<std::string, std::string>> files() const = 0;
};

// Loads tokenizer.json (with all components it describes), or vocab.json + merges.txt, or
// sentencepiece.bpe.model / spiece.model from a folder. Throws Error(kData) naming the folder and
// the files it looked for, or the file and its unusable content; an unsupported component or
// external analyser (MeCab) is named.
[[nodiscard]] std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& folder);

}  // namespace finetune
