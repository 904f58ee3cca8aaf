// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace finetune {

// The properties of a model family that areas without torch need. model_families.def lists the
// families; the other properties are in its Architecture (src/model/).
struct ModelFamily {
  std::string_view model_type;  // of config.json
  // transformers' default class, used if tokenizer_config.json names none.
  std::string_view tokenizer_class;
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

// Returns "" for an unknown model_type.
[[nodiscard]] inline std::string tokenizer_class_of(std::string_view model_type) {
  for (const ModelFamily& family : kModelFamilies) {
    if (family.model_type == model_type) return std::string(family.tokenizer_class);
  }
  return "";
}

}  // namespace finetune
