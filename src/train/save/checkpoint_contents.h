// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "finetune/state/standard_parts.h"
#include "train/session/training_run.h"

// The list of everything that a checkpoint contains: to add a file, add its part here.
namespace finetune {

// Returns the parts that are restored after the run is prepared. `model`: model_part() of the run.
[[nodiscard]] CheckpointParts checkpoint_contents(TrainingRun& run,
                                                  std::shared_ptr<CheckpointPart> model);
// Returns the parts that are restored first, because the run is prepared from them, and written
// last.
[[nodiscard]] CheckpointParts checkpoint_records(TrainingRun& run);

}  // namespace finetune
