// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tokenizer/normalized_text.h"

namespace finetune::tokenizer {

class TextCutter;

using Words = std::vector<NormalizedText>;

// One step of a pre-tokenizer: cuts words into words, none of them empty.
class PreTokenization {
 public:
  virtual ~PreTokenization() = default;
  virtual void apply(Words& words) const = 0;
  // What does the same where it changes nothing but cuts; else null.
  [[nodiscard]] virtual const TextCutter* cutter() const { return nullptr; }
};

// The `pre_tokenizer` of tokenizer.json: BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits,
// Metaspace, Punctuation, Split, Whitespace, WhitespaceSplit and Sequences of them.
class PreTokenizer {
 public:
  // ByteLevel as the last step, for byte-level models: these take the bytes themselves.
  struct ByteLevel {
    bool add_prefix_space = true;
    bool use_regex = true;
  };

  PreTokenizer() = default;  // cuts nothing
  // Throws Error(kData) that names what is not supported; `where` starts its message.
  PreTokenizer(const nlohmann::ordered_json& json, const std::string& where);

  // Cuts every word but leaves byte_level(), where there is one, to the caller.
  void apply(Words& words) const;
  // The words of one text, as apply() cuts it; none of an empty one.
  [[nodiscard]] Words cut(NormalizedText text) const;
  // apply() has nothing to do.
  [[nodiscard]] bool empty() const { return steps_.empty(); }
  // All steps as cutters, one after the other; nothing where one of them is none.
  [[nodiscard]] std::optional<std::vector<const TextCutter*>> cutters() const;
  // A ByteLevel at the end.
  [[nodiscard]] const std::optional<ByteLevel>& byte_level() const { return byte_level_; }
  [[nodiscard]] std::optional<ByteLevel>& byte_level() { return byte_level_; }
  // Makes a ByteLevel at the end a step like any other: its words are then spelled in byte-level
  // characters.
  void spell_bytes();
  // What each step is, as JSON, byte_level() included.
  [[nodiscard]] const std::vector<std::string>& kinds() const { return kinds_; }
  // Where a word begins in the text decides (Metaspace's "first").
  [[nodiscard]] bool needs_origins() const { return needs_origins_; }

 private:
  void add(const nlohmann::ordered_json& json, const std::string& where);

  std::vector<std::shared_ptr<const PreTokenization>> steps_;
  std::vector<std::string> kinds_;
  std::optional<ByteLevel> byte_level_;
  bool needs_origins_ = false;
};

// ByteLevel without its spelling: the space in front, and GPT-2's pattern.
void apply_byte_level(const PreTokenizer::ByteLevel& options, Words& words);

}  // namespace finetune::tokenizer
