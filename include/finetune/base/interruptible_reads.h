// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include "finetune/base/file_system.h"

namespace finetune {

// Returns the same file system, but after a stop was requested, opening and reading files throw
// Interrupted(phase). For phases that read much and have nothing to save.
[[nodiscard]] std::shared_ptr<FileSystem> interruptible_reads(std::shared_ptr<FileSystem> files,
                                                              std::string phase);

}  // namespace finetune
