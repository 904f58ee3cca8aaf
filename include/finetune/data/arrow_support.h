// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace finetune {

// Returns what reads Parquet and Arrow files: "pyarrow 21.0.0 (python3)"; empty if no interpreter
// has it. Starts an interpreter.
[[nodiscard]] std::string describe_arrow_support();

}  // namespace finetune
