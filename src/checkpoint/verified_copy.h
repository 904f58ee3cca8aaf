// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "finetune/base/clock.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/checkpoint/manifest.h"

namespace finetune::checkpoint {

// The source is missing or corrupt: a retry cannot help.
class SourceError final : public Error {
 public:
  using Error::Error;
};

// Discards all writes: used to compute the record of a content.
class NoFile final : public WritableFile {
 public:
  using WritableFile::write;
  void write(const void*, size_t) override {}
  void sync() override {}
  void close() override {}
};

// The file systems of a copy.
struct CopyLocations {
  FileSystem& from;
  FileSystem& to;
  // Called between blocks; throws to abandon the copy.
  std::function<void()> may_continue = [] {};
  Clock* clock = &Clock::steady();
  bool reads_back = true;  // false: only sizes are compared after a copy
};

// Calls `look`, several times if a file that was just written is not visible yet.
void look_until_seen(const CopyLocations& locations, const std::function<void()>& look);

// Copies a file to a new one, syncs it and returns its record. Throws SourceError if the source
// cannot be read, Error(kIo) if the target cannot be written.
FileRecord copy_file(const CopyLocations& locations, const std::string& from,
                     const std::string& to);

// Reads a file of the target back, from the device instead of the page cache if possible, or with
// reads_back false looks at its size. Throws like verify_file().
void read_back(const CopyLocations& locations, const std::string& path, const FileRecord& record);

// Copies under a temporary name, reads back and renames over `to`; an object store needs no other
// name. If `expected` is given and the
// source has another content, throws SourceError(kCheckpoint) and leaves `to` unchanged.
FileRecord replace_file(const CopyLocations& locations, const std::string& from,
                        const std::string& to, const FileRecord* expected = nullptr);

// Returns the record of a file as it is, or of its first bytes. Throws SourceError.
FileRecord record_of(const CopyLocations& locations, const std::string& path,
                     uint64_t max_bytes = std::numeric_limits<uint64_t>::max());

// Copies files below `from` to the folder `to`, from an object store several at a time, syncs them
// and returns their records, which the caller compares. Throws SourceError, or Error(kIo) of `to`.
[[nodiscard]] std::map<std::string, FileRecord> copy_files(
    const CopyLocations& locations, const std::string& from, const std::string& to,
    const std::map<std::string, FileRecord>& wanted);

// What of the files a former attempt at copying them to `folder` lacks. Deletes everything else
// there.
[[nodiscard]] std::map<std::string, FileRecord> still_missing(
    FileSystem& local, const std::string& folder, const std::map<std::string, FileRecord>& wanted);

// Reads a small file; nullopt if it is missing or not a file.
[[nodiscard]] std::optional<std::string> read_if_there(FileSystem& files, const std::string& path,
                                                       uint64_t limit);

// Whether a failed operation on a mount may succeed later.
[[nodiscard]] bool may_pass(const Error& error);

}  // namespace finetune::checkpoint
