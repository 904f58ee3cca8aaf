// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace finetune {

// Compares the base of an adapter's folder with the one on which its run trained: by content, if
// its files are not those that the run saw. Does nothing for whole models, and where no run is
// recorded. Throws Error(kData) if they differ, Error(kIo) and Interrupted.
void check_adapter_base(const std::string& folder);

}  // namespace finetune
