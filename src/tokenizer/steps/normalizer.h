// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/unicode/normalized_text.h"

namespace finetune::tokenizer {

// One step of a normalizer.
class Normalization {
 public:
  virtual ~Normalization() = default;
  virtual void apply(NormalizedText& text) const = 0;
  // Returns true only if apply() changes no character of the text; false is always allowed.
  [[nodiscard]] virtual bool leaves(std::string_view /*text*/) const { return false; }
};

// The `normalizer` of tokenizer.json: BertNormalizer, ByteLevel, Lowercase, NFC, NFD, NFKC, NFKD,
// Nmt, Precompiled, Prepend, Replace, Strip, StripAccents and Sequences of them, with the Unicode
// tables of the tokenizers package.
class Normalizer {
 public:
  Normalizer() = default;  // leaves text unchanged
  // Throws Error(kData) naming unsupported parts; `where` is the prefix of its message.
  Normalizer(const nlohmann::ordered_json& json, const std::string& where);

  [[nodiscard]] bool empty() const { return steps_.empty(); }
  // Returns the JSON of each step; for Precompiled only "Precompiled".
  [[nodiscard]] const std::vector<std::string>& kinds() const { return kinds_; }
  void apply(NormalizedText& text) const;
  // Returns true only if apply() changes no character of the text.
  [[nodiscard]] bool leaves(std::string_view text) const;
  // apply() without origins. Requires: well-formed UTF-8.
  [[nodiscard]] std::string operator()(std::string_view text) const;

 private:
  void add(const nlohmann::ordered_json& json, const std::string& where);

  std::vector<std::shared_ptr<const Normalization>> steps_;
  std::vector<std::string> kinds_;
};

}  // namespace finetune::tokenizer
