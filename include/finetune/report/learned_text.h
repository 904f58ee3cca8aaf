// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

#include "finetune/data/dataset.h"
#include "finetune/tokenizer/tokenizer.h"

namespace finetune {

// What surrounds learned tokens.
struct LearnedMarks {
  std::string begin = "[[", end = "]]";
  // Green on a terminal on standard output that shows colours, else brackets.
  [[nodiscard]] static LearnedMarks for_output();
};

// Returns the first `count` samples as decoded text, with learned tokens marked; control characters
// are escaped. Requires: samples with a label for each token.
[[nodiscard]] std::string learned_text(const Dataset& data, int64_t count,
                                       const Tokenizer& tokenizer, const LearnedMarks& marks);

// What a sequence of a sample of two is: "chosen" and "rejected" of a pair; of an answer with a
// label "desirable" or "undesirable", and the prompt "with another answer". Empty for other
// samples.
[[nodiscard]] std::string side_name(const Dataset& data, int64_t index, int64_t choice);

}  // namespace finetune
