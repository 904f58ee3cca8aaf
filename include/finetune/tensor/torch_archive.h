// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/base/file_system.h"

namespace finetune {

// Checks a file of torch.save as read_torch_file does, checksums included, without torch and
// without making tensors. `path` names it in messages. Throws Error(kData).
void check_torch_file(const ReadableFile& file, const std::string& path);

}  // namespace finetune
