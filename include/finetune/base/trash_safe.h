// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "finetune/base/file_system.h"

namespace finetune {

// Returns a file system that forwards all operations, but truncates a file before removing it: a
// Drive keeps deleted files in its trash, where they count against the quota for a month. Links are
// removed, never followed.
[[nodiscard]] std::shared_ptr<FileSystem> trash_safe(std::shared_ptr<FileSystem> files);

// Returns the local file system as a shared pointer.
[[nodiscard]] std::shared_ptr<FileSystem> shared_local_files();

}  // namespace finetune
