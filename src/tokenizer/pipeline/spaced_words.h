// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/models/token_model.h"
#include "tokenizer/pipeline/simple_words.h"
#include "tokenizer/steps/normalizer.h"
#include "tokenizer/steps/pre_tokenizer.h"

namespace finetune::tokenizer {

// A per-thread cache of the ids of words between spaces of the original text, because words repeat.
// Exact: used only with pipelines that split at spaces (BERT's, XLM-RoBERTa's, SentencePiece's),
// and only for words whose normalisation is the same between two spaces as alone.
class SpacedWords {
 public:
  // Whether these parts treat words between spaces separately, in texts without added tokens that
  // are searched in normalised text.
  [[nodiscard]] static bool serve(const Normalizer& normalizer, const PreTokenizer& pre_tokenizer);

  // Requires: serve(); the arguments outlive this object.
  SpacedWords(const Normalizer& normalizer, const PreTokenizer& pre_tokenizer,
              const TokenModel& model);

  // Appends the ids of a text without added tokens. Returns false if a word is too long for the
  // cache or depends on its neighbours; `ids` may have grown then.
  [[nodiscard]] bool append_ids(std::string_view text, std::vector<int32_t>& ids) const;

 private:
  [[nodiscard]] bool stands_alone(std::string_view word, const std::string& normalized) const;
  // Whether `word` is independent of its neighbours; `ids` are then its ids.
  [[nodiscard]] bool find_ids(std::string_view word, std::vector<int32_t>& ids) const;

  const Normalizer& normalizer_;
  const PreTokenizer& pre_tokenizer_;
  const TokenModel& model_;
  SimpleWords simple_;
  uint64_t serial_;      // identifies this object in the threads' caches
  std::string between_;  // the result of the normalizer for "a"
};

}  // namespace finetune::tokenizer
