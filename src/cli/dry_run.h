// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/config/load.h"

namespace finetune::cli {

// `finetune train --dry_run`: shows the first batch with its labels, then trains one step, saves,
// resumes in a fresh process and trains one more, all in a temporary folder. Touches neither
// output_dir nor mirrors and runs no command of the user's; cache_dir keeps the tokenised data.
// Returns the exit code: 0, or that of the step that failed.
[[nodiscard]] int dry_run(const ConfigWords& words);

}  // namespace finetune::cli
