// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace finetune {

// Held by the process that builds a cache; others wait. Where the file system knows no locks it is
// not held: two builders then write the same bytes, each file whole.
class BuildLock {
 public:
  // `key` names what is waited for. Throws CacheFailure where the file cannot be made, Interrupted.
  BuildLock(const std::string& path, const std::string& key);
  ~BuildLock();
  BuildLock(const BuildLock&) = delete;
  BuildLock& operator=(const BuildLock&) = delete;

  [[nodiscard]] bool has_waited() const { return has_waited_; }

 private:
  int descriptor_ = -1;
  bool has_waited_ = false;
};

}  // namespace finetune
