// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/token_model.h"

namespace finetune::tokenizer {

// A model that caches repeated words: each thread has a bounded cache of short words for one model
// at a time.
class CachedModel : public TokenModel {
 public:
  CachedModel();

  void tokenize(std::string_view word, std::vector<Piece>& pieces) const final;
  void append_ids(std::string_view word, std::vector<int32_t>& ids) const final;
  void append_new_ids(std::string_view word, std::vector<int32_t>& ids) const final;

 protected:
  // Appends the pieces of a non-empty word.
  virtual void segment(std::string_view word, std::vector<Piece>& pieces) const = 0;

 private:
  uint64_t serial_;  // identifies this model in the threads' caches
};

// Returns the ids of <0x00> ... <0xFF>, for bytes without another token; -1 if missing.
[[nodiscard]] std::array<int32_t, 256> byte_fallback_ids(const TokenModel& model);

}  // namespace finetune::tokenizer
