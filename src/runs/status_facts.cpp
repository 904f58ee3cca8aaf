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
constexpr char kLossKey[] = "eval_loss";
constexpr char kBucketKey[] = "bucket";

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

// Returns the values of a step in a line of the log or in the progress record.
StepValues step_values_in(const Json& line) {
  StepValues values{.grad_norm = member(line, "grad_norm"),
                    .learning_rate = member(line, "learning_rate"),
                    .epoch = member(line, "epoch"),
                    .tokens_per_second = member(line, "tokens_per_second"),
                    .memory_mib = member(line, "memory_mib"),
                    .loss = {},
                    .memory_session = {}};
  const auto loss = line.find("loss");  // null in the log if it is NaN or Inf
  if (loss != line.end()) values.loss = loss->is_number() ? *loss : Json();
  return values;
}

RunStatus::Evaluation evaluation_in(const Json& line) {
  RunStatus::Evaluation evaluation{.step = member(line, "step")};
  for (const auto& [key, value] : line.items()) {
    if (key.starts_with("eval_") && (value.is_number() || value.is_null()) &&
        !key.ends_with("runtime") && !key.ends_with("per_second")) {
      evaluation.metrics[key] = value;
    }
  }
  return evaluation;
}

// Finds the best metric: by metric_for_best_model, else the lowest evaluation loss.
void find_best(const RunFolder& run, const std::vector<Json>& lines, RunStatus& status) {
  if (const Json metric = member(run.trainer, "best_metric"); !metric.is_null()) {
    const Json name = member(run.config(), "metric_for_best_model");
    status.best = {.metric = metric,
                   .step = member(run.trainer, "best_global_step"),
                   .name = name.is_string() ? name : Json()};
    return;
  }
  std::optional<RunFolder::BestLoss> best = run.best_loss;
  for (const Json& line : lines) note_evaluation(line, best);
  if (!best) return;
  status.best = {.metric = best->value, .step = best->step, .name = kLossKey, .is_by_loss = true};
}

// Finds the values of the newest training step and of the newest evaluation in the log.
void find_metrics(const RunFolder& run, const std::vector<Json>& lines, RunStatus& status) {
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const StepValues values = step_values_in(*line);
    if (!status.logged.loss && values.loss) {
      status.logged = values;
      status.logged_step = whole_number_in(*line, "step");
      if (!values.memory_mib.is_null()) {
        status.logged.memory_session = whole_number_in(*line, "session");
      }
    }
    if (!status.evaluation && line->contains(kLossKey)) status.evaluation = evaluation_in(*line);
  }
  status.newest = status.logged;
  find_best(run, lines, status);
  // A stop saves steps that were not logged yet.
  const auto logged = lines.empty() ? std::nullopt : whole_number_in(lines.back(), "step");
  status.step = std::max(status.saved_step, logged);
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

// Reads the record that the running process writes every few seconds.
void read_progress(const RunFolder& run, RunStatus& status) {
  const Json& progress = run.progress;
  if (progress.empty()) return;
  const double age = std::max(0.0, unix_seconds() - number_in(progress, "time").value_or(0));
  const Json done = member(progress, "done");
  status.phase = member(progress, "phase");
  status.updated_seconds_ago = age;
  if (status.phase != "train") {
    status.phase_progress = progress;
    status.phase_done = done;
    status.phase_total = member(progress, "total");
    status.phase_unit = member(progress, "unit");
    return;
  }
  status.ceiling_share = member(progress, "ceiling_share");
  status.expected_cost = member(progress, "cost");
  status.session_seconds_left = member(progress, "session_seconds_left");
  // A fast run has logged newer steps than its record has. The values of a step come from one of
  // the two.
  if (done.is_number() && done > status.step.value_or(-1)) {
    StepValues values = step_values_in(progress);
    values.grad_norm = nullptr;  // the logged one is of another step
    for (const auto value : {&StepValues::learning_rate, &StepValues::epoch,
                             &StepValues::tokens_per_second, &StepValues::memory_mib}) {
      if ((values.*value).is_null()) values.*value = status.logged.*value;
    }
    if (!values.loss) values.loss = status.logged.loss;
    values.memory_session = status.session ? status.session : status.logged.memory_session;
    status.newest = values;
    status.step = whole_number_in(progress, "done");
  }
  status.steps_per_second = number_in(progress, "per_second");
  if (const auto left = number_in(progress, "seconds_left")) {
    status.seconds_left = std::max(0.0, *left - age);
  }
  const auto next_save = whole_number_in(progress, "next_save");
  if (next_save > status.step) status.next_save = next_save;
}

// Estimates from the log what the process has not recorded.
void estimate_left(const std::vector<Json>& lines, RunStatus& status) {
  if (status.seconds_left || lines.size() < 2) return;
  struct Point {
    double step;
    Json session;
    std::optional<double> time;
  };
  const auto point_of = [](const Json& line) {
    return Point{number_in(line, "step").value_or(0), member(line, "session"),
                 number_in(line, "time")};
  };
  const Point last = point_of(lines.back());
  for (const Json& line : lines) {
    const Point first = point_of(line);
    const double steps = last.step - first.step;
    if (first.session != last.session || steps <= 0 || !first.time || !last.time) continue;
    const double seconds = *last.time - *first.time;
    if (seconds <= 0) return;
    status.steps_per_second = steps / seconds;
    const double left = static_cast<double>(status.max_steps.value_or(0)) - last.step;
    if (left > 0) status.seconds_left = left * seconds / steps;
    return;
  }
}

void find_next_save(const RunFolder& run, const Json& start, RunStatus& status) {
  const auto every = whole_number_in(start, "save_steps");
  const auto step = status.step;
  const auto last = status.max_steps;
  const bool is_by_steps = member(run.config(), "save_strategy") == "steps";
  if (status.next_save || !is_by_steps || !every || !step || !last) return;
  if (*every < 1 || *step >= *last) return;
  status.next_save = std::min(*last, (*step / *every + 1) * *every);
}

void find_checkpoints(const RunFolder& run, RunStatus& status) {
  status.checkpoints = run.checkpoints;
  for (CheckpointEntry& entry : status.checkpoints) {
    entry.problem = printable(shortened(entry.problem, kLongestError));
  }
  status.quarantined = run.quarantined;
  const CheckpointEntry* newest = run.newest_valid();
  if (newest != nullptr) status.resume_step = newest->step;
  if (!run.is_finished || run.is_foreign) return;
  const checkpoint::FinishedModel model =
      checkpoint::inspect_finished_model(*run.files, run.path, false);
  status.model = !model.has_manifest_file ? "no checksums"
                 : model.is_valid()       ? "valid"
                                          : checkpoint::describe_damage(model);
}

std::optional<RunStatus::Mirror> mirror_of(const RunFolder& run) {
  const Json folder = member(run.config(), "mirror_dir");
  if (!folder.is_string()) return std::nullopt;
  RunStatus::Mirror mirror{.folder = folder.get<std::string>()};
  try {
    const std::shared_ptr<FileSystem> files = checkpoint::files_of_location(mirror.folder);
    mirror.is_reachable = files->exists(mirror.folder);
    if (!mirror.is_reachable) return mirror;
    for (const auto& entry : checkpoint::list_checkpoints(*files, mirror.folder, false)) {
      if (entry.whole) mirror.step = entry.step;
    }
    if (run.is_finished) {
      mirror.has_model =
          checkpoint::inspect_finished_model(*files, mirror.folder, false).is_valid();
    }
  } catch (const Error& error) {
    mirror.is_reachable = false;
    mirror.problem = error.what();
  }
  return mirror;
}

// What the run took so far, by its newest checkpoint.
void find_totals(const RunFolder& run, RunStatus& status) {
  status.trained_seconds = number_in(run.state, "seconds");
  const Json session = member(run.state, "session");
  Json use = run.events.empty() ? Json() : member(run.events.back(), kBucketKey);
  if (!use.is_object()) use = member(session, kBucketKey);  // else of the end, after the last save
  status.bucket_text = bucket_use_text(use);
  if (!status.bucket_text.empty()) status.bucket = use;
  const Json cost = member(session, "cost");
  const auto units = number_in(cost, "units");
  if (!units) return;
  std::string text = format_number("%.2f units", *units);
  const Json money = member(cost, "money");
  if (money.is_object()) {
    for (const auto& [currency, sum] : money.items()) {
      if (sum.is_number()) text += format_number(" (%.2f ", sum.get<double>()) + currency + ")";
    }
  }
  status.spent_cost = text + " spent";
}

void find_ends(const RunFolder& run, RunStatus& status) {
  if (const std::optional<Json> error = newest_event(run, "error")) {
    Json message = member(*error, "message");
    if (message.is_string()) {
      message = printable(shortened(message.get<std::string>(), kLongestError));
    }
    status.last_error = {.time = member(*error, "time"),
                         .message = message.is_string() ? message : Json()};
  }
  if (const std::optional<Json> end = newest_event(run, "end")) {
    status.last_end = {.time = member(*end, "time"),
                       .code = member(*end, "code"),
                       .step = member(*end, "step"),
                       .reason = member(*end, "reason")};
  }
}

}  // namespace

RunStatus status_of(const RunFolder& run) {
  RunStatus status;
  status.output_dir = run.path;
  status.state = run.is_running() ? "running" : state_of_idle(run);
  status.is_foreign = run.is_foreign;
  if (run.is_running()) status.process = run.owner;
  status.is_here = run.activity == RunActivity::kHere;
  const Json start = newest_event(run, "start").value_or(Json());
  status.session = whole_number_in(start, "session");
  status.device = member(start, "device");
  status.run_id = member(start, "run_id");
  status.max_steps = whole_number_in(start.is_object() ? start : run.trainer, "max_steps");
  if (status.max_steps == 0) status.max_steps.reset();
  status.saved_step = whole_number_in(run.trainer, "global_step");
  const std::vector<Json> lines = newest_lines(run);
  find_metrics(run, lines, status);
  find_checkpoints(run, status);
  if (run.is_running()) {
    read_progress(run, status);
    estimate_left(lines, status);
    find_next_save(run, start, status);
  }
  find_totals(run, status);
  status.mirror = mirror_of(run);
  find_ends(run, status);
  return status;
}

}  // namespace finetune
