// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>
#include <string_view>

// Logging to standard error; nothing else logs. Escapes control characters (printable.h) and limits
// the length of messages. spdlog is hidden here, because torch's headers contain another fmt.
namespace finetune::log {

enum class Level { kDebug, kInfo, kWarning, kError };

// Accepts the names of transformers' log_level: debug, info, warning, error, critical, passive.
void set_level(std::string_view name);
[[nodiscard]] bool is_enabled(Level level);

void debug(std::string_view message);
void info(std::string_view message);
void warning(std::string_view message);
void error(std::string_view message);

// Registers how a progress bar erases and redraws its line, so that log lines do not mix with it.
// Both functions are called with the log's lock held and must not log. nullptr unregisters.
void set_status_line(std::function<void()> erase, std::function<void()> redraw);

// Runs `write` (which may use standard error) under the log's lock.
void with_lock(const std::function<void()>& write);

}  // namespace finetune::log
