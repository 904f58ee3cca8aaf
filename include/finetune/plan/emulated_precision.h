// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/kernels/precision.h"

namespace finetune {

// What to say where a key asks for half precision and the processor has no instructions for it:
// what is done instead, and what gives the memory without the time. Empty where there is nothing to
// say.
[[nodiscard]] std::string emulated_precision_note(Precision precision, bool has_instructions);

}  // namespace finetune
