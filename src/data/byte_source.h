// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "finetune/base/file_system.h"

namespace finetune {

// The content of a file from its start to its end, unpacked where the file is packed.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Up to `size` bytes, at least one unless the end is reached. Throws Error(kIo), and Error(kData)
  // where packed bytes are damaged or end too soon.
  [[nodiscard]] virtual size_t read(void* data, size_t size) = 0;
  // Bytes of the file that were read, and in total, both as stored on disk (packed).
  [[nodiscard]] virtual uint64_t offset() const = 0;
  [[nodiscard]] virtual uint64_t size() const = 0;
  // Continues at a byte of the content; false where only reading leads there.
  [[nodiscard]] virtual bool seek(uint64_t) { return false; }
};

// By the name's ending: .gz (several members too; RFC 1952), .zst (several frames too; RFC 8878),
// everything else as it is. `name` is the file's in messages.
[[nodiscard]] std::unique_ptr<ByteSource> read_bytes(std::unique_ptr<ReadableFile> file,
                                                     const std::string& name);

// "rows.jsonl" of "rows.jsonl.gz"; names of files that are not packed stay.
[[nodiscard]] std::string_view without_packing(std::string_view name);

// Implementations, each in its own source.
[[nodiscard]] std::unique_ptr<ByteSource> read_gzip(std::unique_ptr<ReadableFile> file,
                                                    const std::string& name);
[[nodiscard]] std::unique_ptr<ByteSource> read_zstandard(std::unique_ptr<ReadableFile> file,
                                                         const std::string& name);

}  // namespace finetune
