// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "finetune/model/model_config.h"

// The files of an adapter, as PEFT 0.21 writes and reads them: adapter_config.json and
// adapter_model.safetensors, whose names begin with "base_model.model.".
namespace finetune {

// Reads adapter_config.json of a folder; nullopt if it has none, or if it is a whole model.
// Throws Error(kData) naming a setting that changes results and is not available here.
[[nodiscard]] std::optional<nn::LoraConfig> read_adapter_config(const std::string& folder);

// Replaces the labels and the problem type of the base's configuration by those that the adapter in
// `folder` was trained with, as far as the folder's files say.
void read_recorded_labels(const std::string& folder, ModelConfig& config);

}  // namespace finetune
