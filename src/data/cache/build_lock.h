// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/base/locked_file.h"

namespace finetune {

// The lock of the process that builds a cache; others wait. If the owner gives up and deletes the
// folder, the next one creates folder and lock again. On file systems without locks nobody owns it:
// two builders then write the same bytes, and each file is complete or absent.
class BuildLock {
 public:
  // `key` names what is built in messages. Creates the folder of `path`. Throws CacheFailure if
  // folder or file cannot be created, and Interrupted.
  BuildLock(const std::string& path, const std::string& key);
  [[nodiscard]] bool has_waited() const { return has_waited_; }

 private:
  void open(const std::string& path);
  void take(const std::string& key);

  LockedFile file_;
  bool has_waited_ = false;
};

}  // namespace finetune
