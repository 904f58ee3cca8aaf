// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace finetune {

// Parses a session_deadline to seconds since 1970: "2026-11-21T23:30", "2026-11-21 23:30:00+09:00",
// "2026-11-21T14:30Z", or "23:30", the next such time after `now`. Without a zone it is local time.
// nullopt if the text is not a time.
[[nodiscard]] std::optional<int64_t> session_time(const std::string& text, int64_t now);

}  // namespace finetune
