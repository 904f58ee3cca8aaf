// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "finetune/config/load.h"
#include "finetune/report/trackers.h"
#include "train/folder/run_storage.h"

namespace finetune {

// The trackers of report_to that are Python packages (wandb, mlflow). Only rank 0 writes.
class SessionTrackers {
 public:
  // Looks for their packages. Throws Error(kConfig) where one is missing.
  SessionTrackers(const LoadedConfig& config, bool is_first);

  // At the end of a session: writes the folder of each tracker from metrics.jsonl, within a bounded
  // time. A session that trained nothing writes nothing. A failure is a warning.
  void write(RunStorage& storage, bool is_finished);

 private:
  void write_one(TrackedRun& run, RunStorage& storage) const;

  const TrainingArgs& args_;
  std::vector<TrackedRun> runs_;
};

}  // namespace finetune
