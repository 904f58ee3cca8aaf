// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace finetune {

// Returns the minor version of torch that this program was compiled for, "2.13". It runs with every
// build of that version, and with no other version.
[[nodiscard]] std::string torch_built_for();

// Returns the folder from which libtorch_cpu was loaded; empty if unknown.
[[nodiscard]] std::string torch_library_folder();

}  // namespace finetune
