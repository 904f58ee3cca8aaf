// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "finetune/base/text.h"

namespace finetune {

// Why a value is refused; reads on after "'key: value'".
inline constexpr std::string_view kNotYet = "is not available in this version";

inline bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace finetune
