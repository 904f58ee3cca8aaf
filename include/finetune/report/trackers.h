// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

// Folders of experiment trackers, written offline by the trackers' own Python packages:
// wandb/offline-run-<time>-<run_id>, which `wandb sync` uploads, and MLflow's file store in mlruns.
// Both are made from the complete metrics.jsonl and replace what an earlier session of the run
// wrote: a resumed run has no duplicate points, and the next session adds what a killed one did not
// write.
namespace finetune {

// Whether `name` is a value of report_to that this header implements: "wandb" or "mlflow".
[[nodiscard]] bool is_package_tracker(const std::string& name);

struct TrackedRun {
  std::string tracker;
  std::string python;   // from tracker_interpreter()
  std::string folder;   // where wandb or mlruns is created
  std::string metrics;  // path of metrics.jsonl
  std::string run_id;   // the same in all sessions
  std::string name;
  std::string project;  // overridden by WANDB_PROJECT and MLFLOW_EXPERIMENT_NAME
  bool is_finished = false;
};

// Returns a Python interpreter that has the tracker's package: only FINETUNE_PYTHON if it is set,
// otherwise the one that runs the tracker's command (`wandb`, `mlflow`), or python3. Throws
// Error(kConfig), without naming a key, if none has it.
[[nodiscard]] std::string tracker_interpreter(const std::string& tracker);

// Writes the folder and returns its path. Throws Error(kIo) if the package fails; once `gives_up`
// returns true, kills its process and throws. `config` is recorded with the run.
std::string write_tracked_run(const TrackedRun& run, const nlohmann::ordered_json& config,
                              const std::function<bool()>& gives_up);

}  // namespace finetune
