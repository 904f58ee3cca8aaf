// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "finetune/config/fields.h"

namespace finetune {

// Replaces "~", "$NAME" and "${NAME}". Returns nullopt if that is not possible, and sets `problem`
// to text that follows the key: "names the variable $DATA, which is not set".
[[nodiscard]] std::optional<std::string> expand(std::string_view text, std::string& problem);

// Resolves an expanded path against `folder` (empty: the current one) according to its kind.
[[nodiscard]] std::string resolve_path(const std::string& path, const std::string& folder,
                                       PathKind kind);

// Why a text cannot be a location of this kind, as text that follows the key: an address of a
// scheme that is not known would be treated as a folder. Empty: it can.
[[nodiscard]] std::string problem_of_location(std::string_view text, PathKind kind);

}  // namespace finetune
