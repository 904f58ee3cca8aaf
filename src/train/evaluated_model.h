// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/config/load.h"
#include "finetune/model/model_config.h"
#include "finetune/train/run.h"

namespace finetune {

// The folder whose weights are evaluated; empty: what model_name_or_path names. Logs one line that
// says which model it is. Throws Error(kConfig) where there is no such model, Error(kCheckpoint)
// where `choice` is kNewest and the output folder holds neither a valid checkpoint nor a finished
// model.
[[nodiscard]] std::string evaluated_folder(const LoadedConfig& config, EvaluatedModel choice);

// Throws Error(kConfig) where the weights in `folder` lack the head of config's task: without
// training it would answer at random. Reads names only.
void check_head(const LoadedConfig& config, const std::string& folder, const ModelConfig& model);

}  // namespace finetune
