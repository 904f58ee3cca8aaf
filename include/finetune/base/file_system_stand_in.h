// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/base/file_system.h"

namespace finetune {

// Replaces FileSystem::local() by `stand_in` in every thread while the object exists, for tests.
// One at a time; no other thread may run when it is created or destroyed.
class FileSystemStandIn {
 public:
  explicit FileSystemStandIn(FileSystem& stand_in);
  ~FileSystemStandIn();
  FileSystemStandIn(const FileSystemStandIn&) = delete;
  FileSystemStandIn& operator=(const FileSystemStandIn&) = delete;
};

}  // namespace finetune
