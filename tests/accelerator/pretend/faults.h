// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace pretend {

// Called before each operator and each wait. PRETEND_ACCELERATOR_FAULT="NAME COUNT TEXT" makes the
// operator NAME throw TEXT as torch does in its call number COUNT. If the text begins with "CUDA
// error", the device is lost: every later operator and wait throws it too.
void maybe_fail(const std::string& name);

}  // namespace pretend
