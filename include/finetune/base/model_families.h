// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace finetune {

// What areas without torch know of a family of models. The list is model_families.def; the rest of
// a family is its Architecture (src/model/).
struct ModelFamily {
  std::string_view model_type;       // of config.json
  std::string_view tokenizer_class;  // transformers' class where tokenizer_config.json names none
};

#define FINETUNE_MODEL_FAMILY(NAME, ...) ModelFamily{__VA_ARGS__},
inline constexpr std::array kModelFamilies = {
#include "finetune/base/model_families.def"
};
#undef FINETUNE_MODEL_FAMILY

// "roberta", "bert", ...: in the order of the list.
[[nodiscard]] inline std::vector<std::string> model_family_names() {
  std::vector<std::string> names;
  for (const ModelFamily& family : kModelFamilies) names.emplace_back(family.model_type);
  return names;
}

// "" for another model_type.
[[nodiscard]] inline std::string tokenizer_class_of(std::string_view model_type) {
  for (const ModelFamily& family : kModelFamilies) {
    if (family.model_type == model_type) return std::string(family.tokenizer_class);
  }
  return "";
}

}  // namespace finetune
