// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/config/load.h"
#include "finetune/model/model_config.h"
#include "finetune/train/run.h"

namespace finetune {

// Returns the folder of the weights to evaluate; empty: model_name_or_path. Logs in one line which
// model it is. Throws Error(kConfig) if there is no such model, and Error(kCheckpoint) if `choice`
// is kNewest and the output folder has neither a valid checkpoint nor a finished model.
[[nodiscard]] std::string evaluated_folder(const LoadedConfig& config, EvaluatedModel choice);

// Throws Error(kConfig) if the weights in `folder` have no head for config's task: an untrained
// head would answer at random. Reads only names of tensors.
void check_head(const LoadedConfig& config, const std::string& folder, const ModelConfig& model);

}  // namespace finetune
