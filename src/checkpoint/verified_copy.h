// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>

#include "finetune/base/clock.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/checkpoint/manifest.h"

namespace finetune::checkpoint {

// What is to be copied is gone or damaged: trying again does not help.
class SourceError final : public Error {
 public:
  using Error::Error;
};

// Discards what is written: for the record of a content alone.
class NoFile final : public WritableFile {
 public:
  using WritableFile::write;
  void write(const void*, size_t) override {}
  void sync() override {}
  void close() override {}
};

// Between two file systems.
struct CopyPlaces {
  FileSystem& from;
  FileSystem& to;
  // Called between blocks; throws to abandon the copy.
  std::function<void()> may_go_on = [] {};
  Clock* clock = &Clock::steady();
};

// Does `look`, a few times while what was just written is not to be seen yet.
void look_until_seen(const CopyPlaces& places, const std::function<void()>& look);

// Copies a file to a new one, syncs it and returns what was read. Throws SourceError where the
// source cannot be read, Error(kIo) where the target cannot be written.
FileRecord copy_file(const CopyPlaces& places, const std::string& from, const std::string& to);

// Reads a file of the target back, from the device instead of the page cache if possible. Throws as
// verify_file().
void read_back(const CopyPlaces& places, const std::string& path, const FileRecord& record);

// Copies under a temporary name, reads back and renames over `to`. Where `expected` is given and
// the source has another content: SourceError(kCheckpoint), and `to` stays as it is.
FileRecord replace_file(const CopyPlaces& places, const std::string& from, const std::string& to,
                        const FileRecord* expected = nullptr);

// The record of a file as it is. Throws SourceError.
FileRecord record_of(const CopyPlaces& places, const std::string& path);

// Whether a failed operation on a mount may work later.
[[nodiscard]] bool may_pass(const Error& error);

}  // namespace finetune::checkpoint
