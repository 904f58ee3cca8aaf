// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/task/predictor.h"
#include "finetune/task/tasks.h"

namespace finetune::cli {

// On a terminal: continues each line that is typed and shows the words as they come, until the
// end of input. Each line is a separate text. Returns the exit code.
[[nodiscard]] int answer_prompts(const TaskDescriptor& task, const std::string& folder,
                                 PredictOptions options);

}  // namespace finetune::cli
