// SPDX-License-Identifier: MIT
#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include "finetune/base/clock.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/bucket.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/report/bucket_cost.h"
#include "finetune/report/duration_text.h"
#include "finetune/report/figure_text.h"
#include "finetune/report/metrics_file.h"
#include "finetune/report/session_log.h"
#include "finetune/runs/run_facts.h"

namespace finetune {
namespace {

using checkpoint::CheckpointEntry;
using Json = nlohmann::ordered_json;

constexpr uint64_t kTailBytes = uint64_t{1} << 18;  // of metrics.jsonl: hundreds of lines
constexpr size_t kTailEntries = 1000;               // of log_history
constexpr size_t kLongestError = 500;

// Returns the newest lines of the log, oldest first.
std::vector<Json> newest_lines(const RunFolder& run) {
  FileSystem& files = *run.files;
  const std::string path = join_path(run.path, kMetricsFile);
  std::vector<Json> lines;
  try {
    read_json_lines(
        files, path,
        [&](Json&& line, uint64_t) {
          lines.push_back(std::move(line));
          return true;
        },
        offset_of_last_lines(files, path, kTailBytes));
  } catch (const Error&) {  // it is being replaced
  }
  if (!lines.empty()) return lines;
  std::deque<Json> newest;
  for_each_history_entry(run, [&](const Json& entry) {
    newest.push_back(entry);
    if (newest.size() > kTailEntries) newest.pop_front();
  });
  lines.assign(newest.begin(), newest.end());
  return lines;
}

void copy_member_as(const Json& from, const std::string& name, Json& to, const std::string& as) {
  const Json value = member(from, name);
  if (!value.is_null()) to[as] = value;
}

void copy_member(const Json& from, const std::string& name, Json& to) {
  copy_member_as(from, name, to, name);
}

// A loss that is NaN or Inf is null in the log.
void copy_loss(const Json& from, Json& status) {
  if (from.contains("loss")) status["loss"] = from["loss"].is_number() ? from["loss"] : Json();
}

// Adds the best metric: by metric_for_best_model, else the lowest evaluation loss.
void add_best(const RunFolder& run, const std::vector<Json>& lines, Json& status) {
  copy_member(run.trainer, "best_metric", status);
  if (status.contains("best_metric")) {
    copy_member(run.trainer, "best_global_step", status);
    const Json name = member(run.config(), "metric_for_best_model");
    if (name.is_string()) status["best_metric_name"] = name;
    return;
  }
  std::optional<RunFolder::BestLoss> best = run.best_loss;
  for (const Json& line : lines) note_evaluation(line, best);
  if (!best) return;
  status["best_metric"] = best->value;
  status["best_metric_name"] = "eval_loss";
  status["best_global_step"] = best->step;
}

// Adds the values of the newest training step and of the newest evaluation in the log.
void add_metrics(const RunFolder& run, const std::vector<Json>& lines, Json& status) {
  bool has_loss = false;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    if (!has_loss && line->contains("loss")) {
      has_loss = true;
      for (const char* name :
           {"grad_norm", "learning_rate", "epoch", "tokens_per_second", "memory_mib"}) {
        copy_member(*line, name, status);
      }
      copy_loss(*line, status);
      status["logged_step"] = member(*line, "step");
      if (status.contains("memory_mib")) copy_member_as(*line, "session", status, "memory_session");
    }
    if (line->contains("eval_loss") && !status.contains("evaluation")) {
      Json& evaluation = status["evaluation"] = {{"step", member(*line, "step")}};
      for (const auto& [key, value] : line->items()) {
        if (key.starts_with("eval_") && (value.is_number() || value.is_null()) &&
            !key.ends_with("runtime") && !key.ends_with("per_second")) {
          evaluation[key] = value;
        }
      }
    }
  }
  add_best(run, lines, status);
  // A stop saves steps that were not logged yet.
  const auto logged = lines.empty() ? std::nullopt : whole_number_in(lines.back(), "step");
  if (logged && *logged > whole_number_in(status, "step").value_or(-1)) status["step"] = *logged;
}

std::optional<Json> newest_event(const RunFolder& run, const std::string& name) {
  for (auto event = run.events.rbegin(); event != run.events.rend(); ++event) {
    if (member(*event, "event") == name) return *event;
  }
  return std::nullopt;
}

std::string state_of_idle(const RunFolder& run) {
  if (run.is_finished) return "finished";
  const bool has_checkpoints = !run.checkpoints.empty() || run.quarantined > 0;
  if (has_checkpoints && run.newest_valid() == nullptr) return "no_valid_checkpoint";
  if (run.owner) return "killed";  // its lock record was not released
  const Json last = run.events.empty() ? Json() : member(run.events.back(), "event");
  if (last == "error") return "failed";
  return last == "start" || last == "rollback" ? "killed" : "stopped";
}

// Adds the progress of the running process, from the record that it writes every few seconds.
void add_progress(const RunFolder& run, Json& status) {
  const Json& progress = run.progress;
  if (progress.empty()) return;
  const double age = std::max(0.0, unix_seconds() - number_in(progress, "time").value_or(0));
  status["phase"] = member(progress, "phase");
  status["updated_seconds_ago"] = age;
  if (member(progress, "phase") != "train") {
    status["phase_progress"] = progress;
    return;
  }
  for (const char* name : {"ceiling_share", "cost", "session_seconds_left"}) {
    copy_member(progress, name, status);
  }
  // The record is written every few seconds: a fast run has logged newer steps. The values of a
  // step come from one of the two.
  const double done = number_in(progress, "done").value_or(-1);
  if (done > number_in(status, "step").value_or(-1)) {
    for (const char* name : {"learning_rate", "epoch", "tokens_per_second", "memory_mib"}) {
      copy_member(progress, name, status);
    }
    copy_loss(progress, status);
    status.erase("grad_norm");  // it belongs to the logged step
    status["step"] = member(progress, "done");
    if (status.contains("session")) status["memory_session"] = status["session"];
  }
  if (const auto rate = number_in(progress, "per_second")) status["steps_per_second"] = *rate;
  if (const auto left = number_in(progress, "seconds_left")) {
    status["seconds_left"] = std::max(0.0, *left - age);
  }
  const auto next_save = number_in(progress, "next_save");
  if (next_save && *next_save > number_in(status, "step").value_or(-1)) {
    status["next_save"] = progress["next_save"];
  }
}

// Adds estimates from the log if the process has written no record.
void add_estimates(const std::vector<Json>& lines, Json& status) {
  if (status.contains("seconds_left") || lines.size() < 2) return;
  const Json& last = lines.back();
  for (const Json& first : lines) {
    const auto steps = number_in(last, "step").value_or(0) - number_in(first, "step").value_or(0);
    if (member(first, "session") != member(last, "session") || steps <= 0) continue;
    if (!number_in(first, "time") || !number_in(last, "time")) continue;
    const double seconds = *number_in(last, "time") - *number_in(first, "time");
    if (seconds <= 0) return;
    status["steps_per_second"] = steps / seconds;
    const double left = number_in(status, "max_steps").value_or(0) - *number_in(last, "step");
    if (left > 0) status["seconds_left"] = left * seconds / steps;
    return;
  }
}

void add_next_save(const RunFolder& run, const Json& start, Json& status) {
  if (status.contains("next_save")) return;
  const auto every = whole_number_in(start, "save_steps");
  const auto step = whole_number_in(status, "step");
  const auto last = whole_number_in(status, "max_steps");
  const bool is_by_steps = member(run.config(), "save_strategy") == "steps";
  if (!is_by_steps || !every || !step || !last || *every < 1 || *step >= *last) return;
  status["next_save"] = std::min(*last, (*step / *every + 1) * *every);
}

Json checkpoint_json(const CheckpointEntry& entry) {
  Json json = {{"step", entry.step}, {"bytes", entry.bytes}, {"valid", entry.whole}};
  if (entry.created_unix > 0) json["created"] = entry.created_unix;
  if (!entry.whole) json["problem"] = printable(shortened(entry.problem, kLongestError));
  return json;
}

void add_checkpoints(const RunFolder& run, Json& status) {
  Json& list = status["checkpoints"] = Json::array();
  for (const CheckpointEntry& entry : run.checkpoints) list.push_back(checkpoint_json(entry));
  if (run.quarantined > 0) status["quarantined_checkpoints"] = run.quarantined;
  const CheckpointEntry* newest = run.newest_valid();
  if (newest != nullptr) status["resume_step"] = newest->step;
  if (!run.is_finished || run.is_foreign) return;
  const checkpoint::FinishedModel model =
      checkpoint::inspect_finished_model(*run.files, run.path, false);
  status["model"] = !model.has_manifest_file ? "no checksums"
                    : model.is_valid()       ? "valid"
                                             : checkpoint::describe_damage(model);
}

void add_mirror(const RunFolder& run, Json& status) {
  const Json folder = member(run.config(), "mirror_dir");
  if (!folder.is_string()) return;
  Json& mirror = status["mirror"] = {{"folder", folder}};
  const std::string path = folder.get<std::string>();
  try {
    const std::shared_ptr<FileSystem> of_mirror = checkpoint::files_of_location(path);
    FileSystem& files = *of_mirror;
    mirror["reachable"] = files.exists(path);
    if (mirror["reachable"] == false) return;
    const auto entries = checkpoint::list_checkpoints(files, path, false);
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
      if (!entry->whole) continue;
      mirror["step"] = entry->step;
      break;
    }
    if (run.is_finished) {
      mirror["has_model"] = checkpoint::inspect_finished_model(files, path, false).is_valid();
    }
  } catch (const Error& error) {
    mirror["reachable"] = false;
    mirror["problem"] = error.what();
  }
}

void add_owner(const RunFolder& run, const Json& start, Json& status) {
  if (run.is_running()) {
    status["process"] = {{"host", run.owner->host},
                         {"pid", run.owner->pid},
                         {"since", run.owner->since_unix},
                         {"is_here", run.activity == RunActivity::kHere}};
  }
  for (const char* name : {"session", "device", "run_id"}) copy_member(start, name, status);
}

// What the run took so far, by its newest checkpoint.
void add_totals(const RunFolder& run, Json& status) {
  if (const auto seconds = number_in(run.state, "seconds")) status["trained_seconds"] = *seconds;
  Json use = member(member(run.state, "session"), "bucket");
  if (!run.events.empty() && member(run.events.back(), "bucket").is_object()) {
    use = run.events.back()["bucket"];  // of the end, after the last save
  }
  const std::string bucket = bucket_use_text(use);
  if (!bucket.empty()) {
    status["bucket"] = use;
    status["bucket_text"] = bucket;
  }
  const Json cost = member(member(run.state, "session"), "cost");
  const auto units = number_in(cost, "units");
  if (status.contains("cost") || !units) return;
  std::string text = format_number("%.2f units", *units);
  const Json money = member(cost, "money");
  if (money.is_object()) {
    for (const auto& [currency, sum] : money.items()) {
      if (sum.is_number()) text += format_number(" (%.2f ", sum.get<double>()) + currency + ")";
    }
  }
  status["cost"] = text + " spent";
}

void add_ends(const RunFolder& run, Json& status) {
  if (const std::optional<Json> error = newest_event(run, "error")) {
    Json& last = status["last_error"] = Json::object();
    copy_member(*error, "time", last);
    const Json message = member(*error, "message");
    if (message.is_string()) {
      last["message"] = printable(shortened(message.get<std::string>(), kLongestError));
    }
  }
  if (const std::optional<Json> end = newest_event(run, "end")) {
    Json& last = status["last_end"] = Json::object();
    for (const char* name : {"time", "code", "step", "reason"}) copy_member(*end, name, last);
  }
}

}  // namespace

Json status_json(const RunFolder& run) {
  Json status = {{"output_dir", run.path},
                 {"state", run.is_running() ? "running" : state_of_idle(run)},
                 {"is_foreign", run.is_foreign}};
  const Json start = newest_event(run, "start").value_or(Json());
  add_owner(run, start, status);
  const Json steps = member(start.is_object() ? start : run.trainer, "max_steps");
  if (steps.is_number() && steps > 0) status["max_steps"] = steps;
  if (const auto step = whole_number_in(run.trainer, "global_step")) status["step"] = *step;
  const std::vector<Json> lines = newest_lines(run);
  add_metrics(run, lines, status);
  add_checkpoints(run, status);
  if (run.is_running()) {
    add_progress(run, status);
    add_estimates(lines, status);
    add_next_save(run, start, status);
  }
  add_totals(run, status);
  add_mirror(run, status);
  add_ends(run, status);
  return status;
}

}  // namespace finetune
