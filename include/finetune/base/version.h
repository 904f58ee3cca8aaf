// SPDX-License-Identifier: MIT
#pragma once

namespace finetune {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace finetune
