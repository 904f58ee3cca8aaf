// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "finetune/config/fields.h"

namespace finetune {

// "~", "$NAME" and "${NAME}" replaced. Where that is not possible, nothing, and `problem` reads on
// after the key: "names the variable $DATA, which is not set".
[[nodiscard]] std::optional<std::string> expand(std::string_view text, std::string& problem);

// Resolves an expanded path against `folder` (empty: the current one) as its kind asks for.
[[nodiscard]] std::string resolve_path(const std::string& path, const std::string& folder,
                                       PathKind kind);

}  // namespace finetune
