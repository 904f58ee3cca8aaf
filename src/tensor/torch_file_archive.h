// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "finetune/base/file_system.h"
#include "tensor/pickle_reader.h"
#include "tensor/torch_file_zip.h"

namespace finetune {

// A checked file of torch.save: its value, and where the data of every storage lies. Each storage's
// entry is there and has exactly the size that its type and count make; only the checksums of the
// storages are left to read_zip_entry.
struct TorchArchive {
  pickle::Pickle pickle;
  std::vector<ZipEntry> storages;  // as pickle.storages
};

[[nodiscard]] TorchArchive open_torch_archive(const ReadableFile& file, const std::string& path);

}  // namespace finetune
