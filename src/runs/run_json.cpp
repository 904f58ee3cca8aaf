// SPDX-License-Identifier: MIT
// The facts of runs as the documents that `status --json` and `report --format json` print. The
// order of keys stays as it is: people and scripts compare the files.
#include "finetune/base/clock.h"
#include "finetune/base/version.h"
#include "finetune/runs/run_facts.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

void set(Json&) {}
void put(Json&) {}

template <typename T, typename... More>
void set(Json& json, const char* name, const T& value, const More&... more) {
  json[name] = value;
  set(json, more...);
}

// Sets the members that are present. A key that is already there keeps its position.
template <typename T, typename... More>
void put(Json& json, const char* name, const T& value, const More&... more) {
  if constexpr (requires { value.has_value(); }) {
    if (value) json[name] = *value;
  } else {
    if (!value.is_null()) json[name] = value;
  }
  put(json, more...);
}

// An object with all these members, null or not.
template <typename... Members>
Json object(const Members&... members) {
  Json json = Json::object();
  set(json, members...);
  return json;
}

void put_values(const StepValues& values, Json& json) {
  put(json, "grad_norm", values.grad_norm, "learning_rate", values.learning_rate, "epoch",
      values.epoch, "tokens_per_second", values.tokens_per_second, "memory_mib", values.memory_mib,
      "loss", values.loss);
}

void put_evaluation(const RunStatus& status, Json& json) {
  if (!status.evaluation) return;
  Json& evaluation = json["evaluation"] = object("step", status.evaluation->step);
  evaluation.update(status.evaluation->metrics);
}

// In the order of the log, newest first.
void put_log(const RunStatus& status, Json& json) {
  const bool is_evaluated = status.evaluation && status.evaluation->step.is_number() &&
                            status.evaluation->step >= status.logged_step.value_or(0);
  if (is_evaluated) put_evaluation(status, json);
  put_values(status.logged, json);
  put(json, "logged_step", status.logged_step, "memory_session", status.logged.memory_session);
  if (!is_evaluated) put_evaluation(status, json);
  if (const auto& best = status.best) {
    put(json, "best_metric", best->metric);
    if (best->is_by_loss) put(json, "best_metric_name", best->name);
    put(json, "best_global_step", best->step, "best_metric_name", best->name);
  }
  if (status.logged_step || status.evaluation) put(json, "step", status.step);
}

Json checkpoint_json(const checkpoint::CheckpointEntry& entry) {
  Json json = object("step", entry.step, "bytes", entry.bytes, "valid", entry.whole);
  if (entry.created_unix > 0) json["created"] = entry.created_unix;
  if (!entry.whole) json["problem"] = entry.problem;
  return json;
}

Json session_json(const RunReport::Session& session) {
  Json json =
      object("session", session.session, "start", session.start, "first_step", session.first_step,
             "last_step", session.last_step, "host", session.host, "device", session.device,
             "rollbacks", session.rollbacks, "ending", session.ending);
  put(json, "reason", session.reason, "resumed_from", session.resumed_from);
  json["end"] = session.end;
  return json;
}

void put_predictions(const RunReport& run, Json& json) {
  if (!run.predictions_source) return;
  if (run.labels.empty()) {
    Json scores = Json::array();
    for (const RunReport::LabelScore& score : run.label_scores) {
      scores.push_back(object("label", score.label, "precision", score.precision, "recall",
                              score.recall, "f1", score.f1, "samples", score.samples));
    }
    json["class_scores"] = object("scores", scores, "source", *run.predictions_source);
    return;
  }
  Json& confusion = json["confusion"] = object("labels", run.labels, "counts", run.counts);
  if (!run.worst) {  // the worst by score say more than the first mistakes
    Json& mistakes = confusion["worst"] = Json::array();
    for (const RunReport::Sample& sample : run.mistakes) {
      mistakes.push_back(
          object("text", sample.text, "label", sample.label, "predicted", sample.predicted));
    }
  }
  confusion["source"] = *run.predictions_source;
}

Json worst_json(const RunReport::Worst& worst) {
  Json samples = Json::array();
  for (const RunReport::WorstSample& sample : worst.samples_shown) {
    samples.push_back(object("sample", sample.sample, "score", sample.score, "text", sample.text,
                             "label", sample.label, "predicted", sample.predicted));
  }
  Json json = object("measure", worst.measure, "title", worst.title, "source", worst.source,
                     "samples", worst.samples, "worst", samples);
  if (!worst.positives.empty()) {
    json["similarities"] = object("positives", worst.positives, "others", worst.others);
  }
  return json;
}

Json run_json(const RunReport& run) {
  Json sessions = Json::array();
  for (const RunReport::Session& session : run.sessions) sessions.push_back(session_json(session));
  Json changes = Json::array();
  for (const RunReport::Change& change : run.changes) {
    changes.push_back(object("session", change.session, "step", change.step, "key", change.key,
                             "before", change.before, "after", change.after));
  }
  Json json =
      object("name", run.name, "path", run.path, "status", to_json(run.status), "series",
             run.series, "sessions", sessions, "config", run.config, "set_keys", run.set_keys,
             "changes", changes, "results", run.results, "label_names", run.label_names);
  put_predictions(run, json);
  if (run.worst) json["worst"] = worst_json(*run.worst);
  if (!run.calibration.is_null()) json["calibration"] = run.calibration;
  json["notes"] = run.notes;
  json["data"] = run.data;
  put(json, "parameters", run.parameters, "device", run.device);
  json["model"] = run.model;
  const FileValue cost = run.status.cost();
  put(json, "seconds", run.status.trained_seconds, "peak_memory_mib", run.peak_memory_mib,
      "cost_text", cost.is_string() ? cost : FileValue());
  return json;
}

}  // namespace

Json to_json(const RunStatus& status) {
  Json json = object("output_dir", status.output_dir, "state", status.state, "is_foreign",
                     status.is_foreign);
  if (const auto& process = status.process) {
    json["process"] = object("host", process->host, "pid", process->pid, "since",
                             process->since_unix, "is_here", status.is_here);
  }
  put(json, "session", status.session, "device", status.device, "run_id", status.run_id,
      "max_steps", status.max_steps, "step", status.saved_step);
  put_log(status, json);
  Json& checkpoints = json["checkpoints"] = Json::array();
  for (const auto& entry : status.checkpoints) checkpoints.push_back(checkpoint_json(entry));
  if (status.quarantined > 0) json["quarantined_checkpoints"] = status.quarantined;
  put(json, "resume_step", status.resume_step, "model", status.model, "phase", status.phase,
      "updated_seconds_ago", status.updated_seconds_ago, "phase_progress", status.phase_progress,
      "ceiling_share", status.ceiling_share, "cost", status.expected_cost, "session_seconds_left",
      status.session_seconds_left);
  put_values(status.newest, json);
  if (status.newest.grad_norm.is_null()) json.erase("grad_norm");
  put(json, "step", status.step, "memory_session", status.newest.memory_session, "steps_per_second",
      status.steps_per_second, "seconds_left", status.seconds_left, "next_save", status.next_save,
      "trained_seconds", status.trained_seconds, "bucket", status.bucket);
  if (!status.bucket_text.empty()) json["bucket_text"] = status.bucket_text;
  put(json, "cost", status.cost());
  if (const auto& mirror = status.mirror) {
    Json& of_mirror = json["mirror"] =
        object("folder", mirror->folder, "reachable", mirror->is_reachable);
    put(of_mirror, "step", mirror->step, "has_model", mirror->has_model, "problem",
        mirror->problem);
  }
  if (const auto& error = status.last_error) {
    put(json["last_error"] = Json::object(), "time", error->time, "message", error->message);
  }
  if (const auto& end = status.last_end) {
    put(json["last_end"] = Json::object(), "time", end->time, "code", end->code, "step", end->step,
        "reason", end->reason);
  }
  return json;
}

Json to_json(const Report& report) {
  Json runs = Json::array();
  for (const RunReport& run : report.runs) runs.push_back(run_json(run));
  Json differences = Json::array();
  for (const Report::Difference& difference : report.differences) {
    differences.push_back(object("key", difference.key, "values", difference.values));
  }
  return object("version", kVersion, "created", unix_seconds(), "verified", report.is_verified,
                "runs", runs, "differences", differences);
}

}  // namespace finetune
