// SPDX-License-Identifier: MIT
#pragma once

namespace finetune::log {

// Whether log messages are JSON objects, one a line: {"event":"message","time":..., "level":"info",
// "message":"..."}. With `--progress json`, so that a program can read all of standard error.
void set_json_lines(bool as_json);

}  // namespace finetune::log
