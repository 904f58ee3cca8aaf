// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/models/token_model.h"

namespace finetune::tokenizer {

inline constexpr std::string_view kWordStart = "\xE2\x96\x81";  // "▁", U+2581

// A model whose words come again: each thread keeps a bounded cache of short words, of one model at
// a time.
class CachedModel : public TokenModel {
 public:
  CachedModel();

  void tokenize(std::string_view word, std::vector<Piece>& pieces) const final;
  void append_ids(std::string_view word, std::vector<int32_t>& ids) const final;
  void append_new_ids(std::string_view word, std::vector<int32_t>& ids) const final;

 protected:
  // Appends the pieces of a non-empty word.
  virtual void segment(std::string_view word, std::vector<Piece>& pieces) const = 0;
  // From now on words are segmented part by part, a new one beginning with each "▁" after another
  // character. Requires: no piece crosses two parts, and a part alone has the pieces that it has in
  // its word.
  void segment_parts() { has_parts_ = true; }

 private:
  uint64_t serial_;  // tells the threads' caches whose words they hold
  bool has_parts_ = false;
};

// Returns the ids of <0x00> ... <0xFF>, for bytes without another token; -1 if missing.
[[nodiscard]] std::array<int32_t, 256> byte_fallback_ids(const TokenModel& model);

}  // namespace finetune::tokenizer
