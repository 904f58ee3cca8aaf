// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "finetune/nn/lora.h"

// The files of an adapter, as PEFT 0.21 writes and reads them: adapter_config.json and
// adapter_model.safetensors, whose names begin with "base_model.model.".
namespace finetune {

// Reads adapter_config.json of a folder; nullopt if it has none, or if it is a whole model.
// Throws Error(kData) naming a setting that changes results and is not available here, and if the
// folder holds both a model and an adapter.
[[nodiscard]] std::optional<nn::LoraConfig> read_adapter_config(const std::string& folder);
// The same for the file's content.
[[nodiscard]] nn::LoraConfig parse_adapter_config(nlohmann::ordered_json json,
                                                  const std::string& path);

}  // namespace finetune
