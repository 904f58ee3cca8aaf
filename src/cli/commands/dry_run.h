// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/config/load.h"

namespace finetune::cli {

// Implements `finetune train --dry_run`: shows the first batch with its labels, then trains one
// step, saves, resumes in a new process and trains one more, all in a temporary folder. Does not
// touch output_dir or mirrors and runs no user command; the tokenised data stays in cache_dir.
// Returns the exit code: 0, or that of the step that failed.
[[nodiscard]] int dry_run(const ConfigWords& words);

}  // namespace finetune::cli
