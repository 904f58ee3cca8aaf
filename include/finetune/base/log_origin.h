// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/base/log.h"

namespace finetune::log {

// Prefixes messages of level `from` and above with `origin` ("rank 1"), to distinguish processes.
void set_origin(std::string origin, Level from);

}  // namespace finetune::log
