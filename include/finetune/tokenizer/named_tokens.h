// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "finetune/tokenizer/tokenizer.h"

namespace finetune {

// The texts of the special tokens that are there, by their keys in tokenizer_config.json, which are
// also their names in chat templates.
[[nodiscard]] inline std::vector<std::pair<std::string, std::string>> named_tokens(
    const SpecialTokens& special) {
  std::vector<std::pair<std::string, std::string>> named;
  for (const auto& [name, token] : {std::pair("bos_token", &special.bos),
                                    {"eos_token", &special.eos},
                                    {"unk_token", &special.unk},
                                    {"sep_token", &special.sep},
                                    {"pad_token", &special.pad},
                                    {"cls_token", &special.cls},
                                    {"mask_token", &special.mask}}) {
    if (*token) named.emplace_back(name, (*token)->text);
  }
  return named;
}

}  // namespace finetune
