// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "finetune/base/file_system.h"

namespace finetune {

// Passes everything on, but empties a file before it removes it: a Drive keeps what is deleted in
// its trash, where it counts against the quota for a month. Links are removed, never followed.
[[nodiscard]] std::shared_ptr<FileSystem> trash_safe(std::shared_ptr<FileSystem> files);

// The machine's own file system, as a shared pointer.
[[nodiscard]] std::shared_ptr<FileSystem> shared_local_files();

}  // namespace finetune
