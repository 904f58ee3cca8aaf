// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

#include "cli/process/commands.h"

// For commands that try the user's configuration: trainings in separate processes, in a temporary
// folder.
namespace finetune::cli {

struct OwnRun {
  int code = 0;      // 128 + the signal's number if a signal ended it
  int64_t peak = 0;  // resident bytes of its largest process
};

// The output of `train --write_peak FILE`; zeros if no step was trained.
struct WrittenPeak {
  int64_t device = 0;       // of the accelerator; 0 without one
  int64_t reclaimable = 0;  // part of OwnRun::peak: see reclaimable_resident_memory()
};
// Throws Error(kIo or kData).
[[nodiscard]] WrittenPeak read_written_peak(const std::string& path);

// Runs this program with these arguments and waits for it: only a new process shows what a restart
// restores, and its peak memory is separate from this one's. `purpose` completes "cannot start
// finetune again ...". A stop of this process is forwarded.
[[nodiscard]] OwnRun run_self(const Arguments& arguments, const std::string& purpose);

// Sets the file that run_self() starts: not that of this process where a test is the program.
void set_own_program(std::string file);

// A new folder below TMPDIR, deleted with this object.
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
