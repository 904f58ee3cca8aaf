// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "finetune/data/chat_dataset.h"

namespace finetune {

// Builds samples of two sequences, the chosen and the rejected answer, from rows as TRL's
// RewardTrainer reads them: `chosen` and `rejected`, each a text or a list of messages, after
// `prompt` if there is one. Plain texts end with the tokenizer's end of text, conversations are
// rendered. Example::values has the `margin`, if the first row has one. Rows with a sequence of
// more than max_seq_length tokens are left out, as there.
//
// Throws as build_chat_dataset does.
[[nodiscard]] std::shared_ptr<const SequenceDataset> build_preference_dataset(
    const std::vector<std::string>& files, const Tokenizer& tokenizer, const ChatOptions& options);

}  // namespace finetune
