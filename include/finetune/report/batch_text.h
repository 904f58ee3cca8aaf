// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "finetune/data/batch.h"
#include "finetune/tokenizer/tokenizer.h"

namespace finetune {

// How a batch's numbers are shown.
struct BatchNames {
  const Tokenizer& tokenizer;
  bool labels_are_words = false;  // tokens that were masked; else tags of tokens
  bool labels_follow = false;     // the tokens behind, not those that were masked
  std::string (*class_text)(int64_t label) = nullptr;  // unset: the label's name
  std::vector<std::string> id2label;                   // empty where labels have no names
  bool is_regression = false;
};

// The batch's first samples as text, each with what it teaches; long ones are cut. Control
// characters are escaped.
[[nodiscard]] std::string batch_text(const Batch& batch, const BatchNames& names);

}  // namespace finetune
