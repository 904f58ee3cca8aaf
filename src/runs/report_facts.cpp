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

Json curves_json(const Log& log, size_t points) {
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

Json rollback_json(const Json& event) {
  return {{"time", member(event, "time")},
          {"from", member(event, "from")},
          {"to", member(event, "to")},
          {"reason", member(event, "reason")}};
}

// Completes a session without an end event: it was killed, or is running; it lasted at least as
// long as its log. `next`: the start event of the session after it, or null. That session cut the
// log at the step that it resumed from, and recorded how far the log had been.
void close_session(const Log& log, bool is_running, const Json& next, Json& session) {
  session["ending"] = is_running ? "running" : "killed";
  const auto reached = log.sessions.find(whole_number_in(session, "session").value_or(-1));
  const double start = number_in(session, "start").value_or(0);
  double end = is_running ? unix_seconds() : start;
  if (reached != log.sessions.end()) {
    end = std::max(end, reached->second.time);
    session["last_step"] = reached->second.step;
  }
  if (const auto logged = whole_number_in(next, "logged_step")) {
    const auto from = whole_number_in(next, "step");
    const int64_t last = std::max(whole_number_in(session, "last_step").value_or(-1), *logged);
    session["last_step"] = last;
    if (from && *from < last) session["resumed_from"] = *from;
    end = std::max(end, number_in(next, "logged_time").value_or(end));
  }
  if (const auto next_start = number_in(next, "time")) end = std::min(end, *next_start);
  session["end"] = end;
}

Json sessions_json(const RunFolder& run, const Log& log) {
  Json sessions = Json::array();
  bool is_open = false;
  for (const Json& event : run.events) {
    const Json name = member(event, "event");
    if (name == "start") {
      if (is_open) close_session(log, false, event, sessions.back());
      sessions.push_back({{"session", member(event, "session")},
                          {"start", member(event, "time")},
                          {"first_step", member(event, "step")},
                          {"last_step", member(event, "step")},
                          {"host", member(event, "host")},
                          {"device", member(event, "device")},
                          {"rollbacks", Json::array()}});
      is_open = true;
    } else if (is_open && name == "rollback") {
      sessions.back()["rollbacks"].push_back(rollback_json(event));
    } else if (is_open && (name == "end" || name == "error")) {
      Json& session = sessions.back();
      const bool is_finished = member(event, "code") == 0 || member(event, "code") == 4;
      session["ending"] = name == "error" ? "error" : is_finished ? "finished" : "stopped";
      session["reason"] = name == "error" ? member(event, "message") : member(event, "reason");
      session["end"] = member(event, "time");
      if (const auto reached = whole_number_in(event, "step")) session["last_step"] = *reached;
      is_open = false;
    }
  }
  if (is_open) close_session(log, run.is_running(), nullptr, sessions.back());
  return sessions;
}

Json changes_json(const RunFolder& run) {
  Json changes = Json::array();
  Json before;
  for (const Json& event : run.events) {
    const Json config = member(event, "config");
    if (!config.is_object()) continue;
    if (before.is_object()) {
      for (const auto& [key, value] : config.items()) {
        const Json old = member(before, key);
        if (old == value || key == "resume_from_checkpoint") continue;
        changes.push_back({{"session", member(event, "session")},
                           {"step", member(event, "step")},
                           {"key", key},
                           {"before", old},
                           {"after", value}});
      }
    }
    before = config;
  }
  return changes;
}

// Returns the keys that the last session's configuration set; of a run of an older version, those
// that differ from their defaults.
Json set_keys(const RunFolder& run, const Json& config) {
  Json recorded;
  for (const Json& event : run.events) {
    const Json& names = member(event, "set_keys");
    if (names.is_array()) recorded = names;
  }
  if (recorded.is_array()) {
    std::erase_if(recorded.get_ref<Json::array_t&>(), [&](const Json& name) {
      return !name.is_string() || !config.contains(name.get<std::string>());
    });
    return recorded;
  }
  const Json defaults = to_json(TrainingArgs());
  Json names = Json::array();
  for (const auto& [key, value] : config.items()) {
    if (member(defaults, key) != value) names.push_back(key);
  }
  return names;
}

// Returns the values of all_results.json, else the newest values of the log.
Json results_json(const RunFolder& run, const Log& log) {
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

void add_predictions(const RunFolder& run, Json& report) {
  const Json& names = report["label_names"];
  const Json worst = worst_of(run, names);
  Json predictions = predictions_of(run, names);
  // The worst by score say more than the first mistakes.
  if (!worst.is_null() && predictions.is_object()) predictions.erase("worst");
  if (predictions.contains("scores")) {
    report["class_scores"] = std::move(predictions);
  } else if (!predictions.is_null()) {
    report["confusion"] = std::move(predictions);
  }
  if (!worst.is_null()) report["worst"] = worst;
}

Json notes_json(const RunFolder& run, const Log& log, const Json& status) {
  Json notes = Json::array();
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
  const Json model = member(status, "model");
  if (model.is_string() && model != "valid" && model != "no checksums") {
    notes.push_back("the finished model is damaged: " + model.get<std::string>());
  }
  const Json mirror = member(status, "mirror");
  if (mirror.is_object()) {
    const std::string folder = mirror["folder"].get<std::string>();
    const bool is_reachable = member(mirror, "reachable") == true;
    notes.push_back("mirror " + folder + ": " +
                    (!is_reachable             ? "not reachable from here"
                     : mirror.contains("step") ? "has step " + mirror["step"].dump()
                                               : std::string("has no checkpoint")) +
                    (member(mirror, "has_model") == true ? " and the finished model" : ""));
  }
  const Json bucket = member(status, "bucket_text");
  if (bucket.is_string()) notes.push_back("the bucket so far: " + bucket.get<std::string>());
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

Json run_report(const RunFolder& run, size_t points) {
  const Log log = read_log(run);
  const Json status = status_json(run);
  const Json config = run.config();
  Json report = {{"name", file_name(run.path)}, {"path", run.path}, {"status", status}};
  report["series"] = curves_json(log, points);
  report["sessions"] = sessions_json(run, log);
  report["config"] = config;
  report["set_keys"] = set_keys(run, config);
  report["changes"] = changes_json(run);
  report["results"] = results_json(run, log);
  report["label_names"] = label_names(run);
  add_predictions(run, report);
  report["notes"] = notes_json(run, log, status);
  report["data"] = Json::object();
  for (auto event = run.events.rbegin(); event != run.events.rend(); ++event) {
    if (member(*event, "event") != "start") continue;
    if (member(*event, "data").is_object()) report["data"] = (*event)["data"];
    report["parameters"] = member(*event, "parameters");
    report["device"] = member(*event, "device");
    break;
  }
  const Json model = member(config, "model_name_or_path");
  report["model"] = model.is_string() ? model : member(config, "model_type");
  if (const auto seconds = number_in(run.state, "seconds")) report["seconds"] = *seconds;
  if (log.peak_memory) report["peak_memory_mib"] = *log.peak_memory;
  if (member(status, "cost").is_string()) report["cost_text"] = status["cost"];
  return report;
}

Json differing_keys(const Json& runs) {
  Json differences = Json::array();
  std::vector<std::string> keys;
  for (const Json& run : runs) {
    for (const auto& item : run["config"].items()) {
      if (std::ranges::find(keys, item.key()) == keys.end()) keys.push_back(item.key());
    }
  }
  for (const std::string& key : keys) {
    Json values = Json::array();
    for (const Json& run : runs) values.push_back(member(run["config"], key));
    const bool differs =
        std::ranges::any_of(values, [&](const Json& value) { return value != values.front(); });
    if (differs) differences.push_back({{"key", key}, {"values", std::move(values)}});
  }
  return differences;
}

}  // namespace finetune
