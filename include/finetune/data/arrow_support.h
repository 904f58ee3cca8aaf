// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace finetune {

// What reads Parquet and Arrow files here: "pyarrow 21.0.0 (python3)"; empty where no interpreter
// has it. Starts an interpreter.
[[nodiscard]] std::string describe_arrow_support();

}  // namespace finetune
