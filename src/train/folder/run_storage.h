// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "train/folder/finished_run.h"
#include "train/folder/mirrors.h"
#include "train/folder/output_folder.h"

namespace finetune {

// The locations of a run's files, and what changes in all of them.
class RunStorage {
 public:
  // As OutputFolder.
  explicit RunStorage(const LoadedConfig& config, bool is_first = true)
      : folder_(config, is_first), mirrors_(folder_), finished_(folder_, mirrors_) {}

  [[nodiscard]] OutputFolder& folder() { return folder_; }
  [[nodiscard]] Mirrors& mirrors() { return mirrors_; }
  [[nodiscard]] FinishedRun& finished() { return finished_; }

  // Throws Error(kBusy) if another session has taken over the output folder or a mirror. Cheap
  // enough to call at every step.
  void check_ours();

  // Renames checkpoints after this step to .old, in the output folder and in the mirrors.
  void quarantine(int64_t after_step = -1);
  // Moves the former run's model, results and logs to run.old-<k>, in the output folder and in the
  // mirrors (former_run.h). A mirror that fails is a warning. Throws Error(kIo).
  void quarantine_former_run();
  // Removes the mark that the run is finished, in the output folder and in the mirrors.
  void forget_finished();

 private:
  // Runs `action` in the output folder, and in each mirror that is reached; an error in a mirror is
  // a warning that begins with `failure`.
  void in_folder_and_mirrors(
      const std::function<void(FileSystem& files, const std::string& folder)>& action,
      const std::string& failure);

  OutputFolder folder_;
  Mirrors mirrors_;
  FinishedRun finished_;
};

}  // namespace finetune
