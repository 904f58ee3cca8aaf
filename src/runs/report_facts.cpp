// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/model_files.h"
#include "finetune/base/text.h"
#include "finetune/config/dump.h"
#include "finetune/report/curve.h"
#include "finetune/report/figure_text.h"
#include "finetune/report/metrics_file.h"
#include "finetune/report/session_log.h"
#include "finetune/runs/run_facts.h"
#include "runs/predictions.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// Values of a session so far: they begin again with each session.
constexpr const char* kSessionKeys[] = {"tokens_per_second", "memory_mib"};

bool is_of_session(const std::string& key) {
  return std::ranges::find(kSessionKeys, key) != std::end(kSessionKeys);
}

// The logged values: curves, and the last step of each session.
struct Log {
  std::map<std::string, Curve> curves;
  std::vector<std::string> names;  // in the order of their appearance
  struct Reached {
    double time = 0;
    int64_t step = 0;
  };
  std::map<int64_t, Reached> sessions;
  double first_time = kUnknown;
  double last_time = kUnknown;
  std::optional<int64_t> peak_memory;  // MiB, of all sessions
  int64_t unusable = 0;
};

bool is_curve(const std::string& key) {
  static const char* const kNone[] = {"step", "epoch", "time", "session", "total_flos"};
  return std::ranges::none_of(kNone, [&](const char* name) { return key == name; }) &&
         !key.starts_with("train_") && !key.ends_with("_runtime") && !key.ends_with("_per_second");
}

void add_line(const Json& line, Log& log) {
  const std::optional<int64_t> step = whole_number_in(line, "step");
  if (!step) return;
  const int64_t session = whole_number_in(line, "session").value_or(0);
  const double time = number_in(line, "time").value_or(kUnknown);
  if (std::isnan(log.first_time)) log.first_time = time;
  if (!std::isnan(time)) log.last_time = time;
  if (const auto memory = whole_number_in(line, "memory_mib")) {
    log.peak_memory = std::max(log.peak_memory.value_or(0), *memory);
  }
  for (const auto& [key, value] : line.items()) {
    if (!is_curve(key) && key != "tokens_per_second") continue;
    if (!value.is_number() && !value.is_null()) continue;
    Curve& curve = log.curves[key];
    if (curve.empty()) log.names.push_back(key);
    // The line of an evaluation repeats what the step's own line has.
    if (is_of_session(key) && !curve.empty() && curve.newest().step == *step) continue;
    curve.add({.step = *step,
               .value = value.is_number() ? value.get<double>() : kUnknown,
               .time = time,
               .session = session});
  }
  if (session > 0) {
    Log::Reached& reached = log.sessions[session];
    if (!std::isnan(time)) reached.time = time;
    reached.step = *step;
  }
}

Log read_log(const RunFolder& run) {
  Log log;
  log.unusable = for_each_logged_line(run, [&](const Json& line) { add_line(line, log); });
  return log;
}

// Rounds to six digits: sufficient for display, and the file stays small.
Json short_number(double value) {
  if (!std::isfinite(value)) return nullptr;
  return rounded_figure(value);
}

// Rounds a time to a thousandth of a short run's duration: a run of seconds needs milliseconds.
Json short_time(double seconds, double duration) {
  const double unit = duration < 100 ? 1e3 : duration < 10'000 ? 10 : 1;
  if (unit == 1) return std::llround(seconds);
  return std::round(seconds * unit) / unit;
}

Json series_of(const Log& log, size_t points) {
  Json series = Json::object();
  for (const std::string& name : log.names) {
    Json steps = Json::array();
    Json values = Json::array();
    Json times = Json::array();
    Json begins = Json::array();  // of sessions after the first: indices of points
    bool has_times = false;
    int64_t session = 0;
    for (const SeriesPoint& point : log.curves.at(name).points(points)) {
      if (!steps.empty() && point.session != session) begins.push_back(steps.size());
      session = point.session;
      steps.push_back(point.step);
      values.push_back(short_number(point.value));
      const double after = point.time - log.first_time;
      has_times = has_times || std::isfinite(after);
      times.push_back(std::isfinite(after) ? short_time(after, log.last_time - log.first_time)
                                           : Json(nullptr));
    }
    series[name] = {{"s", std::move(steps)}, {"v", std::move(values)}};
    if (has_times) series[name]["t"] = std::move(times);
    if (is_of_session(name) && !begins.empty()) series[name]["b"] = std::move(begins);
  }
  return series;
}

// Completes a session without an end event: it was killed, or is running; it lasted at least as
// long as its log. `next`: the start event of the session after it, or null. That session cut the
// log at the step that it resumed from, and recorded how far the log had been.
void close_session(const Log& log, bool is_running, const Json& next, RunReport::Session& session) {
  session.ending = is_running ? "running" : "killed";
  const auto reached = log.sessions.find(whole_number_of(session.session).value_or(-1));
  const auto next_start = number_in(next, "time");
  const double start = number_of(session.start).value_or(0);
  double end = is_running ? unix_seconds() : start;
  if (reached != log.sessions.end()) {
    end = std::max(end, reached->second.time);
    session.last_step = reached->second.step;
  }
  if (const auto logged = whole_number_in(next, "logged_step")) {
    const auto from = whole_number_in(next, "step");
    const int64_t last = std::max(whole_number_of(session.last_step).value_or(-1), *logged);
    session.last_step = last;
    if (from && *from < last) session.resumed_from = *from;
    end = std::max(end, number_in(next, "logged_time").value_or(end));
  }
  session.end = std::min(end, next_start.value_or(end));
}

std::vector<RunReport::Session> sessions_of(const RunFolder& run, const Log& log) {
  std::vector<RunReport::Session> sessions;
  bool is_open = false;
  for (const Json& event : run.events) {
    const Json name = member(event, "event");
    const Json time = member(event, "time");
    const Json step = member(event, "step");
    const Json reason = member(event, "reason");
    if (name == "start") {
      if (is_open) close_session(log, false, event, sessions.back());
      sessions.push_back({.session = member(event, "session"),
                          .start = time,
                          .first_step = step,
                          .host = member(event, "host"),
                          .device = member(event, "device"),
                          .last_step = step});
      is_open = true;
    } else if (is_open && name == "rollback") {
      sessions.back().rollbacks.push_back({{"time", time},
                                           {"from", member(event, "from")},
                                           {"to", member(event, "to")},
                                           {"reason", reason}});
    } else if (is_open && (name == "end" || name == "error")) {
      RunReport::Session& session = sessions.back();
      const Json code = member(event, "code");
      session.ending = name == "error" ? "error" : code == 0 || code == 4 ? "finished" : "stopped";
      session.reason = name == "error" ? member(event, "message") : reason;
      session.end = time;
      if (whole_number_of(step)) session.last_step = *whole_number_of(step);
      is_open = false;
    }
  }
  if (is_open) close_session(log, run.is_running(), nullptr, sessions.back());
  return sessions;
}

std::vector<RunReport::Change> changes_of(const RunFolder& run) {
  std::vector<RunReport::Change> changes;
  Json before;
  for (const Json& event : run.events) {
    const Json config = member(event, "config");
    if (!config.is_object()) continue;
    for (const auto& [key, value] : config.items()) {
      const Json old = member(before, key);
      if (before.is_null() || old == value || key == "resume_from_checkpoint") continue;
      changes.push_back({.session = member(event, "session"),
                         .step = member(event, "step"),
                         .key = key,
                         .before = old,
                         .after = value});
    }
    before = config;
  }
  return changes;
}

// Returns the keys that the last session's configuration set; of a run of an older version, those
// that differ from their defaults.
std::vector<std::string> set_keys(const RunFolder& run, const Json& config) {
  Json recorded;
  for (const Json& event : run.events) {
    const Json names = member(event, "set_keys");
    if (names.is_array()) recorded = names;
  }
  std::vector<std::string> names;
  for (const Json& name : recorded) {
    if (name.is_string() && config.contains(name.get<std::string>())) names.push_back(name);
  }
  if (recorded.is_array()) return names;
  const Json defaults = to_json(TrainingArgs());
  for (const auto& [key, value] : config.items()) {
    if (member(defaults, key) != value) names.push_back(key);
  }
  return names;
}

// Returns the values of all_results.json, else the newest values of the log.
Json results_of(const RunFolder& run, const Log& log) {
  Json results = Json::object();
  const std::string path = join_path(run.path, kAllResultsFile);
  if (run.files->type(path) == FileType::kFile) {
    try {
      const Json stored =
          parse_json(run.files->read_all(path), path, ErrorKind::kData, {.allow_nan = true});
      for (const auto& [key, value] : stored.items()) {
        if (value.is_number()) results[key] = value;
      }
    } catch (const Error&) {  // damaged, or being replaced
    }
  }
  for (const std::string& name : log.names) {
    if (name != "loss" && !name.starts_with("eval_")) continue;
    if (!results.contains(name)) results[name] = short_number(log.curves.at(name).newest().value);
  }
  return results;
}

Json label_names(const RunFolder& run) {
  const auto* newest = run.newest_valid();
  for (const std::string& folder : {run.path, newest != nullptr ? newest->path : run.path}) {
    try {
      const Json names = member(model_fields_of(folder), "id2label");
      if (names.is_object()) return names;
    } catch (const Error&) {  // without names, class ids are shown
    }
  }
  return Json::object();
}

std::vector<std::string> notes_of(const RunFolder& run, const Log& log, const RunStatus& status) {
  std::vector<std::string> notes;
  const auto note_lines = [&](int64_t lines, const std::string& file) {
    if (lines == 0) return;
    notes.push_back(lines == 1
                        ? "1 line of " + file + " is damaged and left out"
                        : format_text("{} lines of {} are damaged and left out", lines, file));
  };
  note_lines(log.unusable, kMetricsFile);
  note_lines(run.unusable_lines, kSessionsFile);
  if (run.quarantined > 0) {
    notes.push_back(format_text("{} renamed to .bad-N",
                                run.quarantined == 1
                                    ? std::string("1 corrupt checkpoint was")
                                    : format_text("{} corrupt checkpoints were", run.quarantined)));
  }
  if (run.is_foreign) notes.push_back("written by transformers' Trainer: no sessions, no times");
  const std::string model = status.model.value_or("valid");
  if (model != "valid" && model != "no checksums") {
    notes.push_back("the finished model is damaged: " + model);
  }
  if (const auto& mirror = status.mirror) {
    notes.push_back("mirror " + mirror->folder + ": " +
                    (!mirror->is_reachable ? "not reachable from here"
                     : mirror->step        ? format_text("has step {}", *mirror->step)
                                           : std::string("has no checkpoint")) +
                    (mirror->has_model.value_or(false) ? " and the finished model" : ""));
  }
  if (!status.bucket_text.empty()) notes.push_back("the bucket so far: " + status.bucket_text);
  return notes;
}

}  // namespace

int64_t for_each_logged_line(const RunFolder& run, const std::function<void(const Json&)>& take) {
  const std::string path = join_path(run.path, kMetricsFile);
  int64_t lines = 0;
  const int64_t unusable = read_json_lines(*run.files, path, [&](Json&& line, uint64_t) {
    ++lines;
    take(line);
    return true;
  });
  if (lines == 0) for_each_history_entry(run, take);
  // The line that a running process is writing is no damage.
  return run.is_running() ? std::max<int64_t>(0, unusable - 1) : unusable;
}

RunReport report_of(const RunFolder& run, size_t points) {
  const Log log = read_log(run);
  RunReport report;
  report.name = file_name(run.path);
  report.path = run.path;
  report.status = status_of(run);
  report.series = series_of(log, points);
  report.sessions = sessions_of(run, log);
  report.config = run.config();
  report.set_keys = set_keys(run, report.config);
  report.changes = changes_of(run);
  report.results = results_of(run, log);
  report.label_names = label_names(run);
  report.worst = worst_of(run, report.label_names);
  report.calibration = calibration_of(run);
  add_predictions(run, report);
  report.notes = notes_of(run, log, report.status);
  const auto is_start = [](const Json& event) { return member(event, "event") == "start"; };
  const auto start = std::find_if(run.events.rbegin(), run.events.rend(), is_start);
  if (start != run.events.rend()) {
    const Json data = member(*start, "data");
    if (data.is_object()) report.data = data;
    report.parameters = member(*start, "parameters");
    report.device = report.status.device;
  }
  const Json model = member(report.config, "model_name_or_path");
  report.model = model.is_string() ? model : member(report.config, "model_type");
  report.peak_memory_mib = log.peak_memory;
  return report;
}

std::vector<Report::Difference> differing_keys(const std::vector<RunReport>& runs) {
  std::vector<Report::Difference> differences;
  Json keys = Json::object();
  for (const RunReport& run : runs) keys.update(run.config);
  for (const auto& item : keys.items()) {
    std::vector<Json> values;
    for (const RunReport& run : runs) values.push_back(member(run.config, item.key()));
    const bool differs =
        std::ranges::any_of(values, [&](const Json& value) { return value != values.front(); });
    if (differs) differences.push_back({.key = item.key(), .values = std::move(values)});
  }
  return differences;
}

}  // namespace finetune
