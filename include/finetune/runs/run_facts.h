// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "finetune/runs/run_folder.h"

// What `status` and `report` say of a run, as structs, and the documents and texts that they print.
// Times are in Unix seconds, durations in seconds.
namespace finetune {

// A value as a file of the run has it, integer or not; null if the file lacks it.
using FileValue = nlohmann::ordered_json;

// Values of one training step.
struct StepValues {
  FileValue grad_norm, learning_rate, epoch, tokens_per_second, memory_mib;
  std::optional<FileValue> loss;          // null: NaN or Inf
  std::optional<int64_t> memory_session;  // the session whose peak `memory_mib` is
};

struct RunStatus {
  std::string output_dir;
  std::string state;  // running, finished, stopped, failed, killed or no_valid_checkpoint
  bool is_foreign = false, is_here = false;  // written by Trainer; `process` is of this machine
  std::optional<checkpoint::Owner> process;  // of a running run only
  std::optional<int64_t> session;            // the newest; absent without sessions.jsonl
  FileValue device, run_id;
  // max_steps is above 0; saved_step is of trainer_state.json, logged_step the newest with a logged
  // loss, step the newest that is saved, logged or in the progress record.
  std::optional<int64_t> max_steps, saved_step, logged_step, step;
  StepValues logged, newest;  // of logged_step and of step
  struct Evaluation {         // metrics: "eval_...", without durations and speeds
    FileValue step, metrics = FileValue::object();
  };
  std::optional<Evaluation> evaluation;  // the newest
  struct Best {  // by metric_for_best_model, else (is_by_loss) the lowest evaluation loss
    FileValue metric, step, name;
    bool is_by_loss = false;
  };
  std::optional<Best> best;
  std::vector<checkpoint::CheckpointEntry> checkpoints;  // their problems shortened, printable
  int64_t quarantined = 0;
  std::optional<int64_t> resume_step;  // of the newest valid checkpoint
  std::optional<std::string> model;    // of a finished run: "valid", "no checksums" or the damage
  // The progress record of a running process; phase_progress: all of it if `phase` is not "train".
  FileValue phase, phase_progress, phase_done, phase_total, phase_unit;
  FileValue ceiling_share, session_seconds_left, expected_cost;
  std::optional<double> updated_seconds_ago;
  // Of a running run: from that record, else estimated from the log.
  std::optional<double> steps_per_second, seconds_left;
  std::optional<int64_t> next_save;       // step
  std::optional<double> trained_seconds;  // up to the newest checkpoint
  FileValue bucket;                       // bucket_use() of all sessions
  std::string bucket_text;                // empty without such use
  std::optional<std::string> spent_cost;  // text; expected_cost says more
  struct Mirror {
    std::string folder;
    bool is_reachable = false;
    std::optional<int64_t> step = {};         // of its newest valid checkpoint
    std::optional<bool> has_model = {};       // of a finished run
    std::optional<std::string> problem = {};  // why it could not be read
  };
  std::optional<Mirror> mirror;
  struct Event {  // of sessions.jsonl
    FileValue time, message = {}, code = {}, step = {}, reason = {};
  };
  std::optional<Event> last_error, last_end;

  [[nodiscard]] bool is_running() const { return state == "running"; }
  [[nodiscard]] FileValue cost() const {  // text; null if unknown
    return expected_cost.is_null() && spent_cost ? FileValue(*spent_cost) : expected_cost;
  }
};

struct RunReport {
  std::string name, path;  // of the folder
  RunStatus status;
  FileValue series;  // curves as src/report/page/page.js draws them
  struct Session {
    FileValue session, start, first_step, host, device, last_step, end = {};
    std::vector<FileValue> rollbacks = {};
    std::string ending = "";                   // running, killed, error, finished or stopped
    std::optional<FileValue> reason = {};      // absent if running or killed
    std::optional<int64_t> resumed_from = {};  // step; present if the next session lost later ones
  };
  std::vector<Session> sessions;
  FileValue config, results, label_names;  // of the newest session; by metric; by class id
  std::vector<std::string> set_keys;       // keys of `config` that were set
  struct Change {
    FileValue session, step, key, before, after;
  };
  std::vector<Change> changes;  // of the configuration between sessions
  // Of a classifier with several labels for each text; scores are from 0 to 1.
  struct LabelScore {
    std::string label;
    double precision = 0, recall = 0, f1 = 0;
    int64_t samples = 0;
  };
  std::vector<LabelScore> label_scores;
  // Of a classifier with one label for each text; counts: a row for each true label.
  struct Sample {
    std::string text, label, predicted;
  };
  std::vector<std::string> labels;
  std::vector<std::vector<int64_t>> counts;
  std::vector<Sample> mistakes;                   // the first
  std::optional<std::string> predictions_source;  // absent without either
  struct WorstSample : Sample {
    int64_t sample = 0;  // row, from 0
    FileValue score;
  };
  struct Worst {
    FileValue measure;
    std::string title, source;
    FileValue samples;  // how many were predicted
    std::vector<WorstSample> samples_shown = {};
    // Of an embedding: numbers of cosines by equal steps from -1 to 1; else empty.
    FileValue positives = FileValue::array(), others = FileValue::array();
  };
  std::optional<Worst> worst;
  FileValue calibration;  // the kinds of eval_calibration.json; null if missing
  std::vector<std::string> notes;
  FileValue data = FileValue::object();         // of the newest session, by split
  std::optional<FileValue> parameters, device;  // of the newest session; null if not recorded
  FileValue model;                              // name, else type
  std::optional<int64_t> peak_memory_mib;       // of all sessions
};

struct Report {
  std::vector<RunReport> runs;
  struct Difference {
    std::string key;
    std::vector<FileValue> values;  // one for each run; null: unset
  };
  std::vector<Difference> differences;  // keys with different values
  bool is_verified = false;             // every byte of the checkpoints was compared
};

[[nodiscard]] RunStatus status_of(const RunFolder& run);
// Curves are reduced to about `points` points each.
[[nodiscard]] RunReport report_of(const RunFolder& run, size_t points);
[[nodiscard]] std::vector<Report::Difference> differing_keys(const std::vector<RunReport>& runs);

// The output of `finetune status --json`; unknown members are missing.
[[nodiscard]] nlohmann::ordered_json to_json(const RunStatus& status);
// The output of `finetune report --format json`, which src/report/page/page.js draws.
[[nodiscard]] nlohmann::ordered_json to_json(const Report& report);

// The texts; of csv_report(), a row for each line of the runs' logs.
[[nodiscard]] std::string status_text(const RunStatus& status);
[[nodiscard]] std::string markdown_report(const Report& report);
[[nodiscard]] std::string csv_report(const std::vector<RunFolder>& runs);

// Calls `take` for every line of the run's log: metrics.jsonl or, if that is missing, log_history.
// Returns the number of unusable lines.
int64_t for_each_logged_line(const RunFolder& run,
                             const std::function<void(const nlohmann::ordered_json&)>& take);

}  // namespace finetune
