// SPDX-License-Identifier: MIT
#pragma once

#include "train/session/training_run.h"

namespace finetune {

// Writes the finished model in output_dir as export_merged and export_gguf ask, into its folder
// export/. What goes wrong is a warning, because the run is finished: `finetune export` does the
// same again.
void write_exports(const TrainingRun& run);

}  // namespace finetune
