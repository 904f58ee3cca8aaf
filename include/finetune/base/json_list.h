// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "finetune/base/json.h"

namespace finetune {

// As parse_json(), of an object one member of which is a list too long to keep: each item of the
// member `list` is handed to `take` in order, and the result has an empty list in its place.
// Throws JsonError; items before the fault were taken then.
[[nodiscard]] nlohmann::ordered_json parse_json_with_list(
    std::string_view text, const std::string& where, const std::string& list,
    const std::function<void(nlohmann::ordered_json&&)>& take, ErrorKind kind = ErrorKind::kData,
    const JsonLimits& limits = {});

}  // namespace finetune
