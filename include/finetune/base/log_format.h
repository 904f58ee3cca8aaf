// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/base/log.h"

namespace finetune::log {

// Whether log messages are JSON objects, one a line: {"event":"message","time":..., "level":"info",
// "message":"..."}. With `--progress json`, so that a program can read all of standard error.
void set_json_lines(bool as_json);

// Prefixes messages of level `from` and above with `origin` ("rank 1"), to distinguish processes.
void set_origin(std::string origin, Level from);

}  // namespace finetune::log
