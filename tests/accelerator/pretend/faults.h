// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace pretend {

// Call before each operator and each wait. PRETEND_ACCELERATOR_FAULT="NAME COUNT TEXT" makes call
// number COUNT of the operator NAME throw TEXT as torch does. If the text begins with "CUDA error",
// the device is lost: every later operator and wait throws it too.
void maybe_fail(const std::string& name);

}  // namespace pretend
