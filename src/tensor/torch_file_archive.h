// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "finetune/base/file_system.h"
#include "tensor/pickle_reader.h"
#include "tensor/torch_file_zip.h"

namespace at {
class Tensor;
}

namespace finetune {

// A checked file of torch.save: its value, and where the data of each storage is. Each storage's
// data exists and has exactly the size of its type and count; only the checksums of storages are
// left to read_storage().
struct TorchArchive {
  pickle::Pickle pickle;
  std::vector<ZipEntry> storages;  // as pickle.storages
  bool has_checksums = true;       // false: `crc` of the storages is meaningless
};

// Opens both formats: the zip archive, and the sequence of pickles of torch before 1.6.
[[nodiscard]] TorchArchive open_torch_archive(const ReadableFile& file, const std::string& path);

// Reads a storage's data, `size` bytes; throws Error(kData) if the checksum differs.
void read_storage(const ReadableFile& file, const std::string& path, const TorchArchive& archive,
                  size_t storage, void* data);

// Returns it in memory, `[elements]`; throws Error(kData) for booleans that are neither 0 nor 1.
// Implemented in torch_file_reader.cpp.
[[nodiscard]] at::Tensor read_storage(const ReadableFile& file, const std::string& path,
                                      const TorchArchive& archive, size_t storage);

// Implemented in torch_file_legacy.cpp.
[[nodiscard]] bool is_legacy_torch_file(const ReadableFile& file);
[[nodiscard]] TorchArchive open_legacy_torch_file(const ReadableFile& file,
                                                  const std::string& path);

}  // namespace finetune
