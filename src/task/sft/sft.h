// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "finetune/task/setup.h"
#include "finetune/task/tasks.h"

namespace finetune {

// Supervised fine-tuning on chat data, as TRL's SFTTrainer: clm's loss, with labels where the
// conversation is learned.

const TaskKeys& sft_keys();
const TaskDescriptor& sft_descriptor();

[[nodiscard]] std::unique_ptr<TaskSetup> make_sft_setup(const SetupContext& context);

}  // namespace finetune
