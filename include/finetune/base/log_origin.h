// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/base/log.h"

namespace finetune::log {

// Of several processes: messages of this level and above begin with `origin` ("rank 1").
void set_origin(std::string origin, Level from);

}  // namespace finetune::log
