// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "finetune/data/question_answering_dataset.h"

namespace finetune {

// Questions, windows and places of tokens as bytes, for a block of the tokenised cache. The windows
// themselves (`content.tokens`) are not among them.
[[nodiscard]] std::string encode_questions(const QuestionAnsweringDataset::Content& content);

// The other way: as many windows as there are samples, and nothing that points outside. Throws
// Error(kData).
[[nodiscard]] QuestionAnsweringDataset::Content decode_questions(std::string_view bytes,
                                                                 int64_t samples);

}  // namespace finetune
