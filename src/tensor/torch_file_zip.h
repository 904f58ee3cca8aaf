// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "finetune/base/file_system.h"

// The part of the zip format that torch.save uses: stored entries, no encryption, no comments.
namespace finetune {

[[nodiscard]] uint32_t crc32(const void* data, size_t size, uint32_t crc = 0);

struct ZipEntry {
  std::string name;
  uint64_t offset = 0;  // of the data
  uint64_t size = 0;
  uint32_t crc = 0;
};

// Lists an archive; `path` names it in messages. Checks that every entry is within the file,
// entries do not overlap, local and central headers agree, and names are unique. Throws
// Error(kData).
[[nodiscard]] std::vector<ZipEntry> read_zip_directory(const ReadableFile& file,
                                                       const std::string& path);

// Reads an entry's data, `entry.size` bytes; throws Error(kData) if the checksum differs.
void read_zip_entry(const ReadableFile& file, const std::string& path, const ZipEntry& entry,
                    void* data);
// Checks an entry's checksum without keeping the data.
void check_zip_entry(const ReadableFile& file, const std::string& path, const ZipEntry& entry);

// Writes an archive sequentially.
class ZipWriter {
 public:
  explicit ZipWriter(WritableFile& file) : file_(file) {}

  using Sink = std::function<void(const void* data, size_t size)>;
  // `pieces` passes all data to its argument, in order. Called twice, because the checksum precedes
  // the data.
  void add(const std::string& name, uint64_t size, const std::function<void(const Sink&)>& pieces);
  void add(const std::string& name, std::string_view data);
  void finish();  // writes the central directory; nothing may be added after it

 private:
  struct Written {
    ZipEntry entry;
    uint64_t header_offset;
  };

  WritableFile& file_;
  uint64_t position_ = 0;
  std::vector<Written> written_;
};

}  // namespace finetune
