// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/task/predictor.h"
#include "finetune/task/tasks.h"

namespace finetune::cli {

// On a terminal: goes on with each line that is typed and shows the words as they come, until the
// end of input. Each line is a text of its own. Returns the exit code.
[[nodiscard]] int answer_prompts(const TaskDescriptor& task, const std::string& folder,
                                 PredictOptions options);

}  // namespace finetune::cli
