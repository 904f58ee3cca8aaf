// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/kernels/precision.h"

namespace finetune {

// Returns a note for half precision on a processor without instructions for it: what is done
// instead, and which keys save the memory without costing time. Empty if no note is needed.
[[nodiscard]] std::string emulated_precision_note(Precision precision, bool has_instructions);

}  // namespace finetune
