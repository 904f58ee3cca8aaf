// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/base/file_system.h"

namespace finetune {

// For tests: while it lives, FileSystem::local() is `stand_in` in every thread. One at a time; no
// other thread may be at work when it comes or goes.
class FileSystemStandIn {
 public:
  explicit FileSystemStandIn(FileSystem& stand_in);
  ~FileSystemStandIn();
  FileSystemStandIn(const FileSystemStandIn&) = delete;
  FileSystemStandIn& operator=(const FileSystemStandIn&) = delete;
};

}  // namespace finetune
