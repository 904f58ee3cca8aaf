// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "finetune/state/standard_parts.h"
#include "train/training_run.h"

// The one list of what a checkpoint contains: to add a file, add its part here.
namespace finetune {

// What is restored once the run is prepared. `model`: model_part() of the run.
[[nodiscard]] CheckpointParts checkpoint_contents(TrainingRun& run,
                                                  std::shared_ptr<CheckpointPart> model);
// What is restored first, and written last: the run is prepared from it.
[[nodiscard]] CheckpointParts checkpoint_records(TrainingRun& run);

}  // namespace finetune
