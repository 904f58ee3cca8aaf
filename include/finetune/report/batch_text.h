// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "finetune/data/batch.h"
#include "finetune/tokenizer/tokenizer.h"

namespace finetune {

// How the ids and labels of a batch are shown.
struct BatchNames {
  const Tokenizer& tokenizer;
  bool labels_are_words = false;  // labels are token ids (masked tokens); false: tags
  bool labels_follow = false;     // labels are next tokens, not masked ones
  std::string (*class_text)(int64_t label) = nullptr;                     // unset: the label's name
  std::string (*target_text)(const Batch& batch, int64_t row) = nullptr;  // of all targets of a row
  std::vector<std::string> id2label;  // empty if labels have no names
  bool is_regression = false;
};

// Returns the batch's first samples as text, each with its targets; long ones are truncated.
// Control characters are escaped.
[[nodiscard]] std::string batch_text(const Batch& batch, const BatchNames& names);

}  // namespace finetune
