// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

namespace finetune {

// Why a value is rejected; continues a message after "'key: value'".
inline constexpr std::string_view kNotYet = "is not available in this version";
inline constexpr std::string_view kNoHub =
    "is not available: nothing is sent to a hub or service (on_finish_command can do it)";
inline constexpr std::string_view kNoCompiler =
    "is not possible: torch.compile and its kernels exist in Python only";
inline constexpr std::string_view kNoSharding =
    "is not available: DeepSpeed and FSDP are Python libraries";

// Why a value has no effect; continues a message after "has no effect here: ".
inline constexpr std::string_view kNoUpload = "nothing is uploaded";
inline constexpr std::string_view kOneSum =
    "gradients are summed over all processes once an update, whatever has none";
inline constexpr std::string_view kThreads = "batches are made by threads";
inline constexpr std::string_view kPythonOnly = "it concerns Python callbacks only";

}  // namespace finetune
