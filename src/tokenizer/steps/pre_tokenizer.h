// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tokenizer/unicode/normalized_text.h"

namespace finetune::tokenizer {

class TextCutter;

using Words = std::vector<NormalizedText>;

// One step of a pre-tokenizer: splits words into non-empty words.
class PreTokenization {
 public:
  virtual ~PreTokenization() = default;
  virtual void apply(Words& words) const = 0;
  // Returns an equivalent TextCutter if the step only splits and changes nothing, else null.
  [[nodiscard]] virtual const TextCutter* cutter() const { return nullptr; }
};

// The `pre_tokenizer` of tokenizer.json: BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits,
// Metaspace, Punctuation, Split, Whitespace, WhitespaceSplit and Sequences of them.
class PreTokenizer {
 public:
  // ByteLevel as the last step of a byte-level model, which processes the bytes themselves.
  struct ByteLevel {
    bool add_prefix_space = true;
    bool use_regex = true;
  };

  PreTokenizer() = default;  // splits nothing
  // Throws Error(kData) naming unsupported parts; `where` is the prefix of its message.
  PreTokenizer(const nlohmann::ordered_json& json, const std::string& where);

  // Splits every word; leaves byte_level(), if set, to the caller.
  void apply(Words& words) const;
  // Returns the words of one text as split by apply(); none for an empty text.
  [[nodiscard]] Words cut(NormalizedText text) const;
  // Whether apply() does nothing.
  [[nodiscard]] bool empty() const { return steps_.empty(); }
  // Returns all steps as cutters, in order; nullopt if a step has none.
  [[nodiscard]] std::optional<std::vector<const TextCutter*>> cutters() const;
  // Returns the final ByteLevel, if there is one.
  [[nodiscard]] const std::optional<ByteLevel>& byte_level() const { return byte_level_; }
  [[nodiscard]] std::optional<ByteLevel>& byte_level() { return byte_level_; }
  // Turns a final ByteLevel into an ordinary step, whose words are spelled in byte-level
  // characters.
  void spell_bytes();
  // Returns the JSON of each step, including byte_level().
  [[nodiscard]] const std::vector<std::string>& kinds() const { return kinds_; }
  // Whether the result depends on where a word begins in the text (Metaspace's "first").
  [[nodiscard]] bool needs_origins() const { return needs_origins_; }

 private:
  void add(const nlohmann::ordered_json& json, const std::string& where);

  std::vector<std::shared_ptr<const PreTokenization>> steps_;
  std::vector<std::string> kinds_;
  std::optional<ByteLevel> byte_level_;
  bool needs_origins_ = false;
};

// Applies ByteLevel without its spelling: the space in front, and GPT-2's pattern.
void apply_byte_level(const PreTokenizer::ByteLevel& options, Words& words);

}  // namespace finetune::tokenizer
