// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/base/file_system.h"
#include "finetune/report/progress.h"

namespace finetune {

inline constexpr char kProgressFile[] = ".finetune.progress.json";

// Where a running process is, for `finetune status`: a small file that is overwritten every few
// seconds, without a sync. The members of to_json(ProgressSnapshot) and `time` in Unix seconds.
// A write that fails is ignored.
class ProgressRecord {
 public:
  ProgressRecord(FileSystem& files, std::string path);
  void note(const ProgressSnapshot& snapshot);

 private:
  FileSystem& files_;
  std::string path_;
  double next_ = 0;  // Unix seconds
};

}  // namespace finetune
