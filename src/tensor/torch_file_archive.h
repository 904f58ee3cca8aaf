// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "finetune/base/file_system.h"
#include "tensor/pickle_reader.h"
#include "tensor/torch_file_zip.h"

namespace finetune {

// A checked file of torch.save: its value, and where the data of every storage lies. Each storage's
// data is there and has exactly the size that its type and count make; only the checksums of the
// storages are left to read_storage.
struct TorchArchive {
  pickle::Pickle pickle;
  std::vector<ZipEntry> storages;  // as pickle.storages
  bool has_checksums = true;       // false: `crc` of the storages means nothing
};

// Both formats: the zip archive, and the row of pickles of torch before 1.6.
[[nodiscard]] TorchArchive open_torch_archive(const ReadableFile& file, const std::string& path);

// Reads a storage's data, `size` bytes; throws Error(kData) where the checksum differs.
void read_storage(const ReadableFile& file, const std::string& path, const TorchArchive& archive,
                  size_t storage, void* data);

// torch_file_legacy.cpp
[[nodiscard]] bool is_legacy_torch_file(const ReadableFile& file);
[[nodiscard]] TorchArchive open_legacy_torch_file(const ReadableFile& file,
                                                  const std::string& path);

}  // namespace finetune
