// SPDX-License-Identifier: MIT
#include "finetune/base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cmath>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "finetune/base/clock.h"
#include "finetune/base/log_format.h"
#include "finetune/base/printable.h"

namespace finetune::log {
namespace {

struct State {
  std::recursive_mutex mutex;
  std::shared_ptr<spdlog::logger> logger;
  std::function<void()> erase;
  std::function<void()> redraw;
  std::string origin;
  spdlog::level::level_enum origin_from = spdlog::level::off;
  bool as_json = false;

  State() {
    logger = std::make_shared<spdlog::logger>("finetune",
                                              std::make_shared<spdlog::sinks::stderr_sink_st>());
    logger->set_level(spdlog::level::info);
    logger->set_pattern("%v");
    logger->flush_on(spdlog::level::trace);
  }
};

State& state() {
  static State* instance = new State;  // never destroyed: threads may log while the process ends
  return *instance;
}

// Far above our own messages; longer ones contain text from a file.
constexpr size_t kLongestLine = 2'000;
constexpr size_t kLongestMessage = 20'000;

// Limits every line of the message, then the message.
std::string bounded(std::string_view message) {
  std::string text;
  while (true) {
    const size_t end = message.find('\n');
    text += shortened(message.substr(0, end), kLongestLine);
    if (end == std::string_view::npos) return shortened(text, kLongestMessage);
    text += '\n';
    message.remove_prefix(end + 1);
  }
}

std::string json_line(spdlog::level::level_enum level, const std::string& text) {
  const char* name = level == spdlog::level::debug  ? "debug"
                     : level == spdlog::level::info ? "info"
                     : level == spdlog::level::warn ? "warning"
                                                    : "error";
  const nlohmann::ordered_json line = {{"event", "message"},
                                       {"time", std::floor(unix_seconds() * 1000) / 1000},
                                       {"level", name},
                                       {"message", text}};
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void write(spdlog::level::level_enum level, const char* prefix, std::string_view message) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (!s.logger->should_log(level)) return;
  if (s.erase) s.erase();
  const std::string origin = level >= s.origin_from ? s.origin + ": " : std::string();
  // Debug messages are not limited: they may contain a library's stack trace.
  const bool is_debug = level == spdlog::level::debug;
  const std::string text = printable(is_debug ? message : bounded(message));
  s.logger->log(level, s.as_json ? json_line(level, origin + text) : prefix + origin + text);
  if (s.redraw) s.redraw();
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void set_level(std::string_view name) {
  spdlog::level::level_enum level = spdlog::level::info;
  if (name == "debug") level = spdlog::level::debug;
  if (name == "warning") level = spdlog::level::warn;
  if (name == "error" || name == "critical") level = spdlog::level::err;
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.logger->set_level(level);
}

bool is_enabled(Level level) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.logger->should_log(to_spdlog(level));
}

void set_origin(std::string origin, Level from) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.origin = std::move(origin);
  s.origin_from = to_spdlog(from);
}

void debug(std::string_view message) { write(spdlog::level::debug, "debug: ", message); }
void info(std::string_view message) { write(spdlog::level::info, "", message); }
void warning(std::string_view message) { write(spdlog::level::warn, "warning: ", message); }
void error(std::string_view message) { write(spdlog::level::err, "error: ", message); }

void set_json_lines(bool as_json) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.as_json = as_json;
}

void set_status_line(std::function<void()> erase, std::function<void()> redraw) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.erase = std::move(erase);
  s.redraw = std::move(redraw);
}

void with_lock(const std::function<void()>& write) {
  const std::lock_guard lock(state().mutex);
  write();
}

}  // namespace finetune::log
