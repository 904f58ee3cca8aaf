// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace finetune {

// Held by the process that builds a cache; others wait. Where it gives up and takes the folder
// away, the next of them makes folder and lock anew. Where the file system knows no locks it is not
// held: two builders then write the same bytes, each file whole.
class BuildLock {
 public:
  // `key` names what is waited for. Makes the folder of `path`. Throws CacheFailure where it or the
  // file cannot be made, Interrupted.
  BuildLock(const std::string& path, const std::string& key);
  ~BuildLock();
  BuildLock(const BuildLock&) = delete;
  BuildLock& operator=(const BuildLock&) = delete;

  [[nodiscard]] bool has_waited() const { return has_waited_; }

 private:
  void open(const std::string& path);
  void take(const std::string& key);
  void close();
  [[nodiscard]] bool is_at(const std::string& path) const;

  int descriptor_ = -1;
  bool has_waited_ = false;
};

}  // namespace finetune
