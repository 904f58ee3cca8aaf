// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "finetune/base/file_system.h"

namespace finetune {

// Reads a file sequentially, decompressing it if necessary.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Reads up to `size` bytes, at least one unless the end is reached. Throws Error(kIo), and
  // Error(kData) if compressed data is corrupt or truncated.
  [[nodiscard]] virtual size_t read(void* data, size_t size) = 0;
  // Bytes of the file read so far, and in total, both as stored on disk (compressed).
  [[nodiscard]] virtual uint64_t offset() const = 0;
  [[nodiscard]] virtual uint64_t size() const = 0;
  // Continues at a byte of the content; returns false if that requires reading up to it.
  [[nodiscard]] virtual bool seek(uint64_t) { return false; }
};

// Chooses by the name's ending: .gz (several members too; RFC 1952), .zst (several frames too; RFC
// 8878), anything else is read unchanged. `name` is the file's name in messages.
[[nodiscard]] std::unique_ptr<ByteSource> read_bytes(std::unique_ptr<ReadableFile> file,
                                                     const std::string& name);

// Returns "rows.jsonl" for "rows.jsonl.gz"; names of uncompressed files are unchanged.
[[nodiscard]] std::string_view without_packing(std::string_view name);

// Implementations, each in a separate source file.
[[nodiscard]] std::unique_ptr<ByteSource> read_gzip(std::unique_ptr<ReadableFile> file,
                                                    const std::string& name);
[[nodiscard]] std::unique_ptr<ByteSource> read_zstandard(std::unique_ptr<ReadableFile> file,
                                                         const std::string& name);

}  // namespace finetune
