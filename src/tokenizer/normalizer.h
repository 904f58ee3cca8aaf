// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace finetune::tokenizer {

// The `normalizer` of tokenizer.json: NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace (of a plain
// string), Strip and Sequences of them, with the Unicode tables of the tokenizers package.
class Normalizer {
 public:
  Normalizer() = default;  // leaves text alone
  // Throws Error(kData) that names what is not supported; `where` starts its message.
  Normalizer(const nlohmann::ordered_json& json, const std::string& where);

  [[nodiscard]] bool empty() const { return steps_.empty(); }
  // Requires: well-formed UTF-8.
  [[nodiscard]] std::string operator()(std::string_view text) const;

 private:
  enum class Kind { kNfc, kNfd, kNfkc, kNfkd, kLowercase, kPrepend, kReplace, kStrip };
  struct Step {
    Kind kind;
    std::string pattern{};
    std::string content{};
    bool left = false;
    bool right = false;
  };

  void add(const nlohmann::ordered_json& json, const std::string& where);
  [[nodiscard]] static std::string apply(const Step& step, std::string text);

  std::vector<Step> steps_;
};

}  // namespace finetune::tokenizer
