// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace finetune {

// The minor version of torch that this program was compiled for, "2.13": it runs with every build
// of that version, and no other.
[[nodiscard]] std::string torch_built_for();

// Where libtorch_cpu was loaded from; empty where that is not known.
[[nodiscard]] std::string torch_library_folder();

}  // namespace finetune
