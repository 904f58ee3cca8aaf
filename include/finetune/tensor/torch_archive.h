// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/base/file_system.h"

namespace finetune {

// Checks a file of torch.save as read_torch_file does, without torch and without making tensors;
// with `checksums` those of the tensors' data too, where the format has them. `path` names it in
// messages. Throws Error(kData).
void check_torch_file(const ReadableFile& file, const std::string& path, bool checksums = true);

}  // namespace finetune
