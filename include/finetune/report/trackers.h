// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

// Folders of experiment trackers, written offline by the trackers' own Python packages:
// wandb/offline-run-<time>-<run_id>, which `wandb sync` uploads, and MLflow's file store in mlruns.
// Both are made from metrics.jsonl as a whole, which replaces what an earlier session of the run
// wrote: a resumed run has no point twice, and what a killed session did not write comes with the
// next one.
namespace finetune {

// A value of report_to that this header serves: "wandb" or "mlflow".
[[nodiscard]] bool is_package_tracker(const std::string& name);

struct TrackedRun {
  std::string tracker;
  std::string python;   // of tracker_interpreter()
  std::string folder;   // in which wandb or mlruns is made
  std::string metrics;  // path of metrics.jsonl
  std::string run_id;   // the same for all sessions
  std::string name;
  std::string project;  // WANDB_PROJECT and MLFLOW_EXPERIMENT_NAME come before it
  bool is_finished = false;
};

// A Python interpreter that has the tracker's package: FINETUNE_PYTHON alone where it is set, else
// the one that runs the tracker's command (`wandb`, `mlflow`) or python3. Throws Error(kConfig),
// without naming a key, where none has it.
[[nodiscard]] std::string tracker_interpreter(const std::string& tracker);

// Writes the folder and returns its path. Throws Error(kIo) where the package fails, and ends its
// process and throws once `gives_up` returns true. `config` is recorded with it.
std::string write_tracked_run(const TrackedRun& run, const nlohmann::ordered_json& config,
                              const std::function<bool()>& gives_up);

}  // namespace finetune
