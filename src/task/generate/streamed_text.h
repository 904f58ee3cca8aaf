// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "finetune/tokenizer/tokenizer.h"

namespace finetune {

// The text of tokens that come one by one, reported in complete characters: byte-level BPE and byte
// fallback split a character among tokens. The pieces together are what decode() makes of all
// tokens without special ones; where byte fallback follows characters with bytes that are none,
// decode() gives U+FFFD for those characters too, which are reported by then. A token costs the
// decoding of a few, not of all before it.
class StreamedText {
 public:
  using Report = std::function<void(std::string_view piece)>;
  // `tokenizer` must outlive this. Without a `report` nothing is decoded.
  StreamedText(const Tokenizer& tokenizer, Report report);

  void add(int32_t id);
  // Reports the rest: bytes that no token completed are U+FFFD.
  void end();

 private:
  // The text of tokens_.
  [[nodiscard]] std::string decode() const;

  const Tokenizer& tokenizer_;
  Report report_;
  // The last tokens. Those up to `context_` are reported and there because decoders treat a text's
  // first token differently ("▁" is dropped); `reported_` bytes of the text are theirs.
  std::vector<int32_t> tokens_;
  size_t context_ = 0;
  size_t reported_ = 0;
};

}  // namespace finetune
