// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/base/file_system.h"
#include "finetune/report/progress.h"

namespace finetune {

inline constexpr char kProgressFile[] = ".finetune.progress.json";

// The progress of a running process for `finetune status`: a small file that is overwritten every
// few seconds, without a sync. Contains the members of to_json(ProgressSnapshot) and `time` in Unix
// seconds. Write failures are ignored.
class ProgressRecord {
 public:
  ProgressRecord(FileSystem& files, std::string path);
  void note(const ProgressSnapshot& snapshot);
  // Call at the end of a run, of which the record says nothing any more; ends note(), too.
  void remove();

 private:
  FileSystem& files_;
  std::string path_;
  bool is_removed_ = false;
  double next_ = 0;  // Unix seconds of the next write
};

}  // namespace finetune
