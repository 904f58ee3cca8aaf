// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace finetune::checkpoint {

// One writer per output folder, for as long as the object lives. The kernel's lock decides, so a
// process that died, however, yields at once; the record in the file only tells who holds it.
// Throws Error(kBusy) with the owner's process id, host and start where another process has it.
// Makes the folder where it is missing. Not through FileSystem: a lock belongs to a descriptor.
class OutputLock {
 public:
  explicit OutputLock(const std::string& output_dir);
  ~OutputLock();
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace finetune::checkpoint
