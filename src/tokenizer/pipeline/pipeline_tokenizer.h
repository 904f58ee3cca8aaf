// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "finetune/tokenizer/tokenizer.h"
#include "tokenizer/models/token_model.h"
#include "tokenizer/pipeline/added_tokens.h"
#include "tokenizer/pipeline/spaced_words.h"
#include "tokenizer/steps/decoder.h"
#include "tokenizer/steps/normalizer.h"
#include "tokenizer/steps/post_processor.h"
#include "tokenizer/steps/pre_tokenizer.h"

namespace finetune::tokenizer {

// All parts of a tokenizer, read from any of its file formats.
struct PipelineParts {
  std::unique_ptr<TokenModel> model;
  Normalizer normalizer;
  // Its byte_level() is set only if the model processes bytes.
  PreTokenizer pre_tokenizer;
  PostProcessor post_processor;
  Decoder decoder;
  std::vector<AddedToken> added_tokens;
  SpecialTokens special_tokens;
  Tokenizer::Sides sides;
  bool token_types = true;  // the model takes token types
  // Tokens that start with it continue a word; if it is empty, tokens that start with neither "Ġ"
  // nor "▁".
  std::string continuing_prefix;
  // A token's text is what the input has at its range (Unigram), not its spelling.
  bool unigram = false;
  std::vector<std::pair<std::string, std::string>> files;
};

// Runs added tokens, normalizer, pre-tokenizer, model and post-processor in sequence, like the
// tokenizers package.
class PipelineTokenizer : public Tokenizer {
 public:
  explicit PipelineTokenizer(PipelineParts parts);
  PipelineTokenizer(const PipelineTokenizer&) = delete;
  PipelineTokenizer& operator=(const PipelineTokenizer&) = delete;

  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const override;
  [[nodiscard]] Tokens encode_with_literals(std::string_view text,
                                            std::span<const TextRange> literal) const override;
  [[nodiscard]] std::vector<int32_t> encode_word(std::string_view word) const override;
  [[nodiscard]] ModelText combine(std::span<const int32_t> first,
                                  std::optional<std::span<const int32_t>> second) const override;
  using Tokenizer::num_special_tokens_to_add;
  [[nodiscard]] int64_t num_special_tokens_to_add(bool pair) const override {
    return parts_.post_processor.num_added(pair);
  }
  [[nodiscard]] Sides sides() const override { return parts_.sides; }
  [[nodiscard]] std::string decode(std::span<const int32_t> ids,
                                   bool skip_special_tokens) const override;
  [[nodiscard]] int64_t size() const override { return size_; }
  [[nodiscard]] std::optional<int32_t> token_to_id(std::string_view token) const override;
  [[nodiscard]] std::string id_to_token(int32_t id) const override;
  [[nodiscard]] bool is_special(int32_t id) const override;
  [[nodiscard]] const SpecialTokens& special_tokens() const override {
    return parts_.special_tokens;
  }
  [[nodiscard]] bool continues_word(int32_t id) const override;
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> files() const override {
    return parts_.files;
  }

 private:
  using ByteLevel = PreTokenizer::ByteLevel;
  class Run;

  // Whether all splitting steps are TextCutters, so that no text need be copied.
  [[nodiscard]] bool is_plain(const std::optional<ByteLevel>& byte_level) const;
  // Appends the ids if all words between spaces are independent; returns false and leaves `ids`
  // unchanged otherwise.
  [[nodiscard]] bool append_spaced(std::string_view text, std::vector<int32_t>& ids) const;
  void append_plain(std::string_view text, const ByteLevel& byte_level,
                    std::vector<int32_t>& ids) const;
  // Splits by cutters_[step] and those after it, and calls visit(std::string_view) for each word, a
  // view into `text`.
  template <class Visit>
  void for_each_piece(std::string_view text, size_t step, const Visit& visit) const;
  [[nodiscard]] std::vector<int32_t> encode(std::string_view text, bool add_prefix_space) const;

  PipelineParts parts_;
  AddedTokens added_;
  int64_t size_ = 0;
  // The steps of the pre-tokenizer with ByteLevel's pattern, if all of them only split.
  std::optional<std::vector<const TextCutter*>> cutters_;
  std::unique_ptr<const SpacedWords> spaced_words_;  // null if not applicable
};

}  // namespace finetune::tokenizer
