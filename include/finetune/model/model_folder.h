// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "finetune/model/model.h"

namespace finetune {

// The folder that a model name stands for: itself, or where the local Hugging Face cache has it.
// `where` starts messages. Throws Error(kConfig): for what may be a hub name with the command that
// fetches it, for a path with the nearest folder. `base` is the folder that a relative name was
// looked for in first; empty: the current one.
[[nodiscard]] std::string resolve_model_folder(const std::string& name, const std::string& where,
                                               const std::string& base = "");

// Copies the weights of a model folder by name. Throws Error(kData).
LoadReport load_folder_weights(Model& model, const std::string& folder,
                               const LoadOptions& options = {});

// Draws the named parameters as a model of this seed that draws all of them does.
void draw_weights(Model& model, uint64_t seed, const std::vector<std::string>& names);

}  // namespace finetune
