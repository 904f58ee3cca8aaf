// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "finetune/nn/lora.h"

// The files of an adapter, as PEFT 0.21 writes and reads them: adapter_config.json and
// adapter_model.safetensors, whose names begin with "base_model.model.".
namespace finetune {

// Reads adapter_config.json of a folder; nullopt if it has none, or if it is a whole model.
// Throws Error(kData) naming a setting that changes results and is not available here.
[[nodiscard]] std::optional<nn::LoraConfig> read_adapter_config(const std::string& folder);

}  // namespace finetune
