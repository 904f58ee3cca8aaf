// SPDX-License-Identifier: MIT
#include "finetune/report/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "finetune/base/clock.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/report/figure_text.h"

namespace finetune {
namespace {

constexpr double kDrawSeconds = 0.5;
constexpr double kLineSeconds = 60;
constexpr double kJsonSeconds = 1;
constexpr double kQuickSeconds = 1;  // for step()
constexpr double kPointSeconds = 2;
constexpr size_t kPoints = 60;
constexpr int64_t kBarColumns = 20;
constexpr int64_t kShortestBar = 5;

// Formats three digits and a unit: 0.87, 10.2, 8.4k, 312k, 1.2M.
std::string quantity(double value) {
  const char* unit = "";
  for (const char* next : {"k", "M", "G", "T"}) {
    if (value < 999.5) break;
    value /= 1000;
    unit = next;
  }
  const bool is_plain = *unit == '\0';
  const char* format = value < 9.95 ? (is_plain ? "%.2f" : "%.1f") : value < 99.5 ? "%.1f" : "%.0f";
  return format_number(format, value) + unit;
}

std::string duration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e8) return "?";
  const auto whole = static_cast<int64_t>(seconds);
  std::array<char, 64> text{};
  const auto hours = static_cast<long long>(whole / 3600);
  const int minutes = static_cast<int>(whole / 60 % 60);
  const int rest = static_cast<int>(whole % 60);
  if (hours > 0) {
    std::snprintf(text.data(), text.size(), "%lld:%02d:%02d", hours, minutes, rest);
  } else {
    std::snprintf(text.data(), text.size(), "%02d:%02d", minutes, rest);
  }
  return text.data();
}

std::string speed(double rate, const std::string& unit) {
  return rate >= 1 ? quantity(rate) + " " + unit + "/s" : quantity(1 / rate) + " s/" + unit;
}

std::string count(int64_t done, int64_t total, const std::string& unit) {
  if (total > 0) return format_text("{}/{}", done, total);
  return format_text("{} {}", done, unit);
}

int64_t percent(int64_t done, int64_t total) {
  return static_cast<int64_t>(
      100.0 *
      std::clamp(static_cast<double>(done) / static_cast<double>(std::max<int64_t>(1, total)), 0.0,
                 1.0));
}

// Counts one column per code point: names and values are Latin text.
int64_t columns_of(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

std::string cut(const std::string& text, int64_t columns) {
  size_t end = 0;
  while (end < text.size()) {
    if ((text[end] & 0xc0) != 0x80 && columns-- <= 0) break;
    ++end;
  }
  return text.substr(0, end);
}

std::string bar(int64_t done, int64_t total, int64_t columns) {
  const double share = static_cast<double>(done) / static_cast<double>(std::max<int64_t>(1, total));
  const auto filled =
      static_cast<int64_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(columns));
  return std::string(static_cast<size_t>(filled), '#') +
         std::string(static_cast<size_t>(columns - filled), ' ');
}

// Formats everything next to the bar, the most important first; a narrow terminal shows only the
// first `shown`.
std::string figures_text(const std::string& times, const std::string& step_speed,
                         const ProgressFigures& figures, const std::string& end, int shown) {
  std::string inner = times;
  std::string outer;
  if (figures.loss && shown > 0) outer += " loss " + format_number("%.4g", *figures.loss);
  if (!step_speed.empty() && shown > 1) inner += ", " + step_speed;
  if (figures.tokens_per_second && shown > 2) {
    inner += ", " + quantity(*figures.tokens_per_second) + " tok/s";
  }
  if (figures.learning_rate && shown > 3)
    outer += " lr " + format_number("%.1e", *figures.learning_rate);
  if (figures.memory_mib && shown > 4) {
    outer += format_text(" mem {} MiB", *figures.memory_mib);
  }
  if (figures.ceiling_share && shown > 5) {
    inner += ", " + format_number("%.0f", 100 * *figures.ceiling_share) + "% of ceiling";
  }
  if (!end.empty() && shown > 6) outer += " ends " + end;
  if (figures.epoch && shown > 7) outer += " epoch " + format_number("%.2f", *figures.epoch);
  if (figures.next_save && shown > 8) outer += format_text(" next save {}", *figures.next_save);
  if (figures.session_seconds_left && shown > 9) {
    outer += " session " + duration(std::max(0.0, *figures.session_seconds_left)) + " left";
  }
  if (figures.cost && shown > 10) outer += " " + *figures.cost;
  return "[" + inner + "]" + outer;
}
constexpr int kAllFigures = 11;

std::string times_text(double elapsed, int64_t left, double rate, bool has_total) {
  if (!has_total) return duration(elapsed);
  return duration(elapsed) + "<" +
         (rate > 0 ? duration(static_cast<double>(std::max<int64_t>(0, left)) / rate) : "?");
}

void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written <= 0) return;  // progress that cannot be written is not an error
    text.remove_prefix(static_cast<size_t>(written));
  }
}

int terminal_columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  int columns = 0;
  if (const char* text = std::getenv("COLUMNS")) {
    std::from_chars(text, text + std::char_traits<char>::length(text), columns);
  }
  return columns > 0 ? columns : 80;
}

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

// See no-color.org; FORCE_COLOR=0 does not force colours.
bool wants_color(bool is_terminal) {
  if (is_set("NO_COLOR")) return false;
  if (is_set("FORCE_COLOR")) return std::string_view(std::getenv("FORCE_COLOR")) != "0";
  return is_terminal;
}

// Figures to a few digits, so that lines stay short.
nlohmann::ordered_json short_number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(rounded_figure(value))
                              : nlohmann::ordered_json(nullptr);
}

template <class T>
void take(std::optional<T>& known, const std::optional<T>& given) {
  if (given) known = given;
}

}  // namespace

ProgressOutput ProgressOutput::standard_error() {
  const char* terminal = std::getenv("TERM");
  const bool is_terminal =
      isatty(STDERR_FILENO) == 1 && (terminal == nullptr || std::string_view(terminal) != "dumb");
  return {.now = now_seconds,
          .write = write_all,
          .width = terminal_columns,
          .is_terminal = is_terminal,
          .has_color = wants_color(is_terminal),
          .unix_time = unix_seconds};
}

std::optional<double> ProgressSnapshot::seconds_left() const {
  if (total <= 0 || rate <= 0) return std::nullopt;
  return static_cast<double>(std::max<int64_t>(0, total - done)) / rate;
}

nlohmann::ordered_json to_json(const ProgressSnapshot& snapshot) {
  nlohmann::ordered_json json = {
      {"phase", snapshot.phase}, {"unit", snapshot.unit}, {"done", snapshot.done}};
  const auto add = [&](const char* name, const std::optional<double>& value) {
    if (value) json[name] = short_number(*value);
  };
  if (snapshot.total > 0) json["total"] = snapshot.total;
  json["elapsed"] = short_number(snapshot.elapsed);
  if (snapshot.rate > 0) json["per_second"] = short_number(snapshot.rate);
  add("seconds_left", snapshot.seconds_left());
  const ProgressFigures& figures = snapshot.figures;
  add("epoch", figures.epoch);
  add("loss", figures.loss);
  add("learning_rate", figures.learning_rate);
  add("tokens_per_second", figures.tokens_per_second);
  add("ceiling_share", figures.ceiling_share);
  if (figures.memory_mib) json["memory_mib"] = *figures.memory_mib;
  if (figures.next_save) json["next_save"] = *figures.next_save;
  add("session_seconds_left", figures.session_seconds_left);
  if (figures.cost) json["cost"] = *figures.cost;
  return json;
}

double ProgressDisplay::Phase::rate(double now) const {
  if (points.empty()) return 0;
  Point from = points.front();
  // As many steps after the slow ones tell more than all of them together.
  if (settled && settled->time > from.time && done - settled->done >= settled->done - from.done) {
    from = *settled;
  }
  if (done <= from.done || now <= from.time) return 0;
  return static_cast<double>(done - from.done) / (now - from.time);
}

ProgressSnapshot ProgressDisplay::snapshot(const Phase& phase, double now) {
  return {.phase = phase.name,
          .unit = phase.unit,
          .done = phase.done,
          .total = phase.total,
          .elapsed = now - phase.begun,
          .rate = phase.rate(now),
          .figures = phase.figures};
}

void ProgressDisplay::tell_observer(double now) const {
  if (observer_ && !phases_.empty()) observer_(snapshot(phases_.back(), now));
}

// Returns "14:05", with the date if that is another day; empty if unknown.
std::string ProgressDisplay::end_text(const Phase& phase, double now) const {
  const std::optional<double> left = snapshot(phase, now).seconds_left();
  // A short phase needs no clock time.
  if (!output_.unix_time || !left || *left < 60 || *left > 1e8) return "";
  const double today = std::floor(output_.unix_time());
  const double end = today + std::floor(*left);
  const bool is_today = local_time_text(today, "%F") == local_time_text(end, "%F");
  return local_time_text(end, is_today ? "%H:%M" : "%b %d %H:%M");
}

// Adds colours, which occupy no columns.
std::string ProgressDisplay::painted(const std::string& line) const {
  if (!output_.has_color) return line;
  const size_t name = std::min(line.find(' '), line.size());
  std::string text = "\x1b[1m" + line.substr(0, name) + "\x1b[0m";
  const size_t first = line.find('|', name);
  const size_t last = first == std::string::npos ? first : line.find('|', first + 1);
  if (last == std::string::npos) return text + line.substr(name);
  return text + line.substr(name, first + 1 - name) + "\x1b[32m" +
         line.substr(first + 1, last - first - 1) + "\x1b[0m" + line.substr(last);
}

std::string ProgressDisplay::plain_line(const Phase& phase, double now, int64_t columns) const {
  const double rate = phase.rate(now);
  const std::string share =
      phase.total > 0 ? format_text(" ({}%)", percent(phase.done, phase.total)) : "";
  const std::string head =
      phase.name + " " + count(phase.done, phase.total, phase.unit) + share + " ";
  for (int shown = kAllFigures;; --shown) {
    const std::string line =
        head +
        figures_text(times_text(now - phase.begun, phase.total - phase.done, rate, phase.total > 0),
                     rate > 0 ? speed(rate, phase.unit) : "", phase.figures, end_text(phase, now),
                     shown);
    if (shown == 0 || columns_of(line) <= columns) return line;
  }
}

std::string ProgressDisplay::bar_line(const Phase& phase, double now, int columns) const {
  const double rate = phase.rate(now);
  const bool has_total = phase.total > 0;
  // The last column stays free, because some terminals wrap as soon as it is written.
  const int64_t limit = std::max(columns - 1, 1);
  std::string head = phase.name + " ";
  if (has_total) {
    const std::string number = std::to_string(percent(phase.done, phase.total));
    head += std::string(3 - std::min<size_t>(3, number.size()), ' ') + number + "% ";
  }
  const std::string counted = count(phase.done, phase.total, phase.unit) + " ";
  const std::string times =
      times_text(now - phase.begun, phase.total - phase.done, rate, has_total);
  const std::string step_speed = rate > 0 ? speed(rate, phase.unit) : "";
  const std::string end = end_text(phase, now);
  for (int shown = kAllFigures; shown >= 0; --shown) {
    const std::string tail = counted + figures_text(times, step_speed, phase.figures, end, shown);
    const int64_t room = limit - columns_of(head) - columns_of(tail);
    if (!has_total && room >= 0) return head + tail;
    if (room - 3 < kShortestBar) continue;
    const int64_t width = std::min(room - 3, kBarColumns);
    return head + "|" + bar(phase.done, phase.total, width) + "| " + tail;
  }
  // No space for a bar: show the remaining time and the loss instead.
  const std::string loss =
      phase.figures.loss ? "loss " + format_number("%.4g", *phase.figures.loss) : "";
  const std::string left = has_total && rate > 0 ? "<" + times.substr(times.find('<') + 1) : "";
  for (const std::string& tail : {loss + (loss.empty() ? "" : " ") + left, loss, left}) {
    if (!tail.empty() && columns_of(head + counted + tail) <= limit) return head + counted + tail;
  }
  return cut(head + counted, limit);
}

ProgressDisplay::ProgressDisplay(ProgressMode mode, ProgressOutput output)
    : mode_(mode), output_(std::move(output)) {
  if (mode_ == ProgressMode::kAuto) {
    mode_ = output_.is_terminal ? ProgressMode::kBar : ProgressMode::kPlain;
  }
}

ProgressDisplay::~ProgressDisplay() {
  while (!phases_.empty()) end();
}

std::optional<int64_t> ProgressDisplay::text_columns() const {
  if (!output_.is_terminal || mode_ == ProgressMode::kJson) return std::nullopt;
  // The last column stays free, because some terminals wrap as soon as it is written.
  return std::max(output_.width() - 1, 1);
}

void ProgressDisplay::begin(std::string phase, int64_t total, int64_t done, std::string unit) {
  close_step();
  const double now = output_.now();
  open({.name = std::move(phase),
        .unit = std::move(unit),
        .total = total,
        .done = done,
        .begun = now,
        .last_line = now,
        .last_line_done = -1,
        .points = {{now, done}},
        .settled = {},
        .figures = {}},
       now);
}

void ProgressDisplay::open(Phase phase, double now) {
  phases_.push_back(std::move(phase));
  tell_observer(now);
  if (mode_ == ProgressMode::kJson) write_json("begin", now);
  if (mode_ != ProgressMode::kBar) return;
  if (phases_.size() == 1) log::set_status_line([this] { erase(); }, [this] { redraw(); });
  draw(now);
}

void ProgressDisplay::step(const std::string& phase, int64_t done, int64_t total,
                           const std::string& unit) {
  const double now = output_.now();
  if (step_.phase != phase) {
    close_step();
    step_ = {.phase = phase, .begun = now, .begun_at = done, .is_open = false};
  }
  if (!step_.is_open) {
    if (now - step_.begun < kQuickSeconds) {
      if (done >= total) step_ = {};
      return;
    }
    step_.is_open = true;
    open({.name = phase,
          .unit = unit,
          .total = total,
          .done = done,
          .begun = step_.begun,
          .last_line = step_.begun,
          .last_line_done = -1,
          .points = {{step_.begun, step_.begun_at}},
          .settled = {},
          .figures = {}},
         now);
  }
  show(done, {});
  if (done >= total) close_step();
}

void ProgressDisplay::close_step() {
  if (step_.is_open) close();
  step_ = {};
}

void ProgressDisplay::update(int64_t done, const ProgressFigures& figures) {
  close_step();
  show(done, figures);
}

void ProgressDisplay::show(int64_t done, const ProgressFigures& figures) {
  if (phases_.empty()) return;
  const double now = note(done, figures);
  tell_observer(now);
  const double silent = now - phases_.back().last_line;
  if (mode_ == ProgressMode::kBar) {
    if (now - last_drawn_ >= kDrawSeconds) draw(now);
  } else if (mode_ == ProgressMode::kPlain) {
    if (silent >= kLineSeconds) write_plain(now);
  } else if (mode_ == ProgressMode::kJson) {
    if (silent >= kJsonSeconds) write_json("update", now);
  }
}

void ProgressDisplay::log(int64_t done, const ProgressFigures& figures) {
  close_step();
  if (phases_.empty()) return;
  const double now = note(done, figures);
  tell_observer(now);
  if (mode_ == ProgressMode::kJson) write_json("log", now);
  if (mode_ == ProgressMode::kBar || mode_ == ProgressMode::kPlain) write_plain(now);
  if (mode_ == ProgressMode::kBar) draw(now);
}

void ProgressDisplay::end() {
  close_step();
  close();
}

void ProgressDisplay::close() {
  if (phases_.empty()) return;
  const double now = output_.now();
  const Phase& phase = phases_.back();
  if (mode_ == ProgressMode::kNone || mode_ == ProgressMode::kJson) {
    if (mode_ == ProgressMode::kJson) write_json("end", now);
    phases_.pop_back();
    return;
  }
  if (mode_ == ProgressMode::kPlain) {
    if (phase.last_line_done != phase.done) write_plain(now);
    phases_.pop_back();
    return;
  }
  if (phases_.size() > 1) {
    phases_.pop_back();
    draw(now);
    return;
  }
  const bool stands_above = phase.last_line_done == phase.done;  // as the line of a logged step
  if (!stands_above) draw(now);
  log::with_lock([&] {
    if (stands_above) {
      erase();
    } else {
      output_.write("\n");
    }
    bar_.clear();
  });
  log::set_status_line(nullptr, nullptr);
  phases_.pop_back();
}

double ProgressDisplay::note(int64_t done, const ProgressFigures& figures) {
  Phase& phase = phases_.back();
  const double now = output_.now();
  phase.done = done;
  if (!phase.settled && done >= phase.points.front().done + kSlowSteps) phase.settled = {now, done};
  if (now - phase.points.back().time >= kPointSeconds) {
    phase.points.push_back({now, done});
    if (phase.points.size() > kPoints) phase.points.pop_front();
  }
  take(phase.figures.loss, figures.loss);
  take(phase.figures.learning_rate, figures.learning_rate);
  take(phase.figures.tokens_per_second, figures.tokens_per_second);
  take(phase.figures.memory_mib, figures.memory_mib);
  take(phase.figures.cost, figures.cost);
  take(phase.figures.epoch, figures.epoch);
  take(phase.figures.next_save, figures.next_save);
  // The last step has no next save; the one before it is known no more.
  if (phase.figures.next_save && *phase.figures.next_save <= done) phase.figures.next_save.reset();
  take(phase.figures.session_seconds_left, figures.session_seconds_left);
  take(phase.figures.ceiling_share, figures.ceiling_share);
  return now;
}

void ProgressDisplay::draw(double now) {
  last_drawn_ = now;
  const int columns = output_.width();
  const std::string line = bar_line(phases_.back(), now, columns);
  log::with_lock([&] {
    const int64_t before = std::min<int64_t>(columns_of(bar_), std::max(columns - 1, 1));
    const int64_t rest = std::max<int64_t>(0, before - columns_of(line));
    output_.write("\r" + painted(line) + std::string(static_cast<size_t>(rest), ' '));
    bar_ = line;
  });
}

void ProgressDisplay::write_plain(double now) {
  Phase& phase = phases_.back();
  phase.last_line = now;
  phase.last_line_done = phase.done;
  // On a terminal a line that wraps within a word is hard to read; elsewhere nothing is left out.
  const int64_t columns =
      mode_ == ProgressMode::kBar ? std::max(output_.width() - 1, 1) : INT64_MAX;
  const std::string line = painted(plain_line(phase, now, columns)) + "\n";
  log::with_lock([&] {
    erase();
    output_.write(line);
    bar_.clear();
  });
}

void ProgressDisplay::write_json(const char* event, double now) {
  Phase& phase = phases_.back();
  phase.last_line = now;
  nlohmann::ordered_json json = {{"event", event}};
  if (output_.unix_time) json["time"] = std::floor(output_.unix_time() * 1000) / 1000;
  json.update(to_json(snapshot(phase, now)));
  const std::string line = json.dump() + "\n";
  log::with_lock([&] { output_.write(line); });
}

void ProgressDisplay::erase() {
  if (bar_.empty()) return;
  // In a terminal that was made narrower, more spaces would begin another line.
  const int64_t columns = std::min<int64_t>(columns_of(bar_), std::max(output_.width() - 1, 1));
  output_.write("\r" + std::string(static_cast<size_t>(columns), ' ') + "\r");
}

void ProgressDisplay::redraw() {
  if (!bar_.empty()) output_.write("\r" + painted(bar_));
}

}  // namespace finetune
