// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace finetune {

// The moment that a session_deadline means, in seconds since 1970: "2026-11-21T23:30",
// "2026-11-21 23:30:00+09:00", "2026-11-21T14:30Z", or "23:30", the next time that the clock shows
// it behind `now`. Without a zone it is local time. Nothing where the text is no time.
[[nodiscard]] std::optional<int64_t> session_time(const std::string& text, int64_t now);

}  // namespace finetune
