// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "finetune/data/question_answering_dataset.h"

namespace finetune {

// Serialises questions, windows and token offsets for a block of the token cache. The tokens of the
// windows (`content.tokens`) are stored separately.
[[nodiscard]] std::string encode_questions(const QuestionAnsweringDataset::Content& content);

// The inverse. Checks that there is a window for each sample and that no index is out of range.
// Throws Error(kData).
[[nodiscard]] QuestionAnsweringDataset::Content decode_questions(std::string_view bytes,
                                                                 int64_t samples);

}  // namespace finetune
