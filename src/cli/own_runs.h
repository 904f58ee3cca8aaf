// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

#include "cli/commands.h"

// Shared by commands that try the user's configuration: trainings in separate processes, in a
// temporary folder.
namespace finetune::cli {

struct OwnRun {
  int code = 0;      // 128 + the number of a signal that ended it
  int64_t peak = 0;  // resident bytes of its largest process
};

// What `train --write_peak FILE` wrote; zeros where no step was trained.
struct WrittenPeak {
  int64_t device = 0;       // of the accelerator; 0 without one
  int64_t reclaimable = 0;  // part of OwnRun::peak: see reclaimable_resident_memory()
};
// Throws Error(kIo or kData).
[[nodiscard]] WrittenPeak read_written_peak(const std::string& path);

// Runs this very program with these words and waits for it: only a fresh process shows what a
// restart restores, and its peak is not mixed with this one's. `purpose` completes "cannot start
// finetune again ...". A stop that is asked of this process is passed on.
[[nodiscard]] OwnRun run_self(const Arguments& arguments, const std::string& purpose);

// A new folder below TMPDIR, removed with this object.
class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& purpose);  // "plan": .../finetune-plan-XXXXXX
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace finetune::cli
