// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "finetune/model/model.h"

namespace finetune {

// Returns the folder of a model name: the name itself, or the folder in the local Hugging Face
// cache. `where` is the prefix of messages. Throws Error(kConfig): for a possible hub name with the
// command that downloads it, for a path with the nearest folder. `base`: the folder in which a
// relative name was searched first; empty: the current one.
[[nodiscard]] std::string resolve_model_folder(const std::string& name, const std::string& where,
                                               const std::string& base = "");

// Copies the weights of a model folder by name. Throws Error(kData).
LoadReport load_folder_weights(Model& model, const std::string& folder,
                               const LoadOptions& options = {});

// Initialises the named parameters with the values that a new model of this seed has.
void draw_weights(Model& model, uint64_t seed, const std::vector<std::string>& names);

}  // namespace finetune
