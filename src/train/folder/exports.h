// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "finetune/config/training_args.h"

namespace finetune {

// The folder of a run's exports in output_dir.
inline constexpr char kExportsFolder[] = "export";

// Returns the names of what export_merged and export_gguf ask for and output_dir/export lacks:
// files that are missing, of another type, or of another model than the finished one.
// export/exports.json records what is there. Requires: the run in output_dir is finished.
[[nodiscard]] std::vector<std::string> missing_exports(const TrainingArgs& args);

// Writes what missing_exports() returns, each under its name only once it is complete, and returns
// whether nothing is missing any more. An export that fails is logged as an error: the same command
// tries again. Throws Interrupted.
[[nodiscard]] bool write_missing_exports(const TrainingArgs& args);

}  // namespace finetune
