// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "finetune/config/load.h"

namespace finetune {

// Whether a key says what an adapter_config.json says: "lora_r", "use_dora".
[[nodiscard]] bool is_of_adapter_config(const std::string& key);

// The parsed keys lora_rank_pattern, lora_alpha_pattern and lora_layers_to_transform. Throw
// Error(kConfig), which names the key, for a value that is none of theirs; validate() calls them.
[[nodiscard]] std::vector<std::pair<std::string, int64_t>> lora_ranks(const LoadedConfig& config);
[[nodiscard]] std::vector<std::pair<std::string, double>> lora_alphas(const LoadedConfig& config);
[[nodiscard]] std::vector<int64_t> lora_layers(const LoadedConfig& config);

}  // namespace finetune
