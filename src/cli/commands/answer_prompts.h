// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/task/predictor.h"
#include "finetune/task/tasks.h"

namespace finetune::cli {

// Interactive generation on a terminal: continues each typed line and prints the words as they are
// generated, until the end of input. Each line is a separate text. Returns the exit code.
[[nodiscard]] int answer_prompts(const TaskDescriptor& task, const std::string& folder,
                                 PredictOptions options);

}  // namespace finetune::cli
