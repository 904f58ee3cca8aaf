// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/base/file_system.h"

namespace finetune {

// Checks a file of torch.save like read_torch_file, without torch and without creating tensors;
// with `checksums` also those of the tensors' data, if the format has them. `path` names the file
// in messages. Throws Error(kData).
void check_torch_file(const ReadableFile& file, const std::string& path, bool checksums = true);

}  // namespace finetune
