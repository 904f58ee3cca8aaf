// SPDX-License-Identifier: MIT
#include "checkpoint/verified_copy.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <random>

#include "finetune/base/text.h"

namespace finetune::checkpoint {
namespace {

constexpr double kFirstRetryPause = 0.25;
constexpr double kLongestRetryPause = 4.0;

std::unique_ptr<ReadableFile> open_source(const CopyPlaces& places, const std::string& path) {
  try {
    return places.from.open(path);
  } catch (const Error& error) {
    throw SourceError(error.kind(), error.what(), error.system_error());
  }
}

void stream(const CopyPlaces& places, const std::string& from, WritableFile& to,
            uint64_t max_bytes = std::numeric_limits<uint64_t>::max()) {
  const std::unique_ptr<ReadableFile> source = open_source(places, from);
  const uint64_t size = std::min(source->size(), max_bytes);
  std::string block(static_cast<size_t>(std::min(size, kBlockBytes)), '\0');
  for (uint64_t offset = 0; offset < size; offset += kBlockBytes) {
    places.may_go_on();
    const auto count = static_cast<size_t>(std::min(kBlockBytes, size - offset));
    try {
      source->read_at(offset, block.data(), count);
    } catch (const Error& error) {
      throw SourceError(error.kind(), error.what(), error.system_error());
    }
    to.write(block.data(), count);
  }
}

}  // namespace

FileRecord copy_file(const CopyPlaces& places, const std::string& from, const std::string& to) {
  // A file that failed to sync cannot be trusted, so a retry never reuses it.
  if (places.to.object_store() == nullptr && places.to.exists(to)) places.to.remove_file(to);
  const std::unique_ptr<WritableFile> file = places.to.create(to);
  RecordingFile recording(*file);
  stream(places, from, recording);
  file->sync();
  file->close();
  return recording.record();
}

void look_until_seen(const CopyPlaces& places, const std::function<void()>& look) {
  for (double pause = kFirstRetryPause;; pause *= 2) {
    try {
      look();
      return;
    } catch (const Error& error) {
      if (error.system_error() != ENOENT || pause > kLongestRetryPause) throw;
    }
    places.may_go_on();
    places.clock->sleep(pause);
  }
}

void read_back(const CopyPlaces& places, const std::string& path, const FileRecord& record) {
  look_until_seen(places, [&] {
    if (!places.reads_back) {
      const uint64_t bytes = places.to.open(path)->size();
      if (bytes == record.bytes) return;
      throw Error(ErrorKind::kIo,
                  format_text("'{}' has {} bytes there instead of {}", path, bytes, record.bytes));
    }
    places.to.drop_cached(path);
    verify_file(*places.to.open(path), record, path);
  });
}

namespace {

[[noreturn]] void refuse_source(const std::string& path) {
  throw SourceError(ErrorKind::kCheckpoint,
                    "'" + path +
                        "' does not match its checksum, so it is not copied; run the same command "
                        "again to repair it");
}

FileRecord replace_object(const CopyPlaces& places, const std::string& from, const std::string& to,
                          const FileRecord* expected) {
  FileRecord record;
  if (expected != nullptr) {
    record = record_of(places, from);
    if (record != *expected) refuse_source(from);
    places.to.object_store()->upload({{.from = from, .to = to, .bytes = record.bytes}},
                                     places.may_go_on, [](const ObjectStore::Transfer&) {});
  } else {  // it may grow meanwhile: what is recorded is sent
    record = copy_file(places, from, to);
  }
  read_back(places, to, record);
  return record;
}

}  // namespace

FileRecord replace_file(const CopyPlaces& places, const std::string& from, const std::string& to,
                        const FileRecord* expected) {
  if (places.to.object_store() != nullptr) return replace_object(places, from, to, expected);
  static thread_local std::mt19937_64 names{std::random_device{}()};
  const std::string temporary =
      join_path(parent_path(to), format_text(".tmp-{}.{}", file_name(to), names()));
  try {
    const FileRecord record = copy_file(places, from, temporary);
    if (expected != nullptr && record != *expected) refuse_source(from);
    read_back(places, temporary, record);
    places.to.rename(temporary, to);
    look_until_seen(places, [&] { (void)places.to.open(to); });
    return record;
  } catch (...) {
    try {
      if (places.to.exists(temporary)) places.to.remove_file(temporary);
    } catch (const Error&) {  // report the first failure
    }
    throw;
  }
}

FileRecord record_of(const CopyPlaces& places, const std::string& path, uint64_t max_bytes) {
  NoFile none;
  RecordingFile recording(none);
  stream(places, path, recording, max_bytes);
  return recording.record();
}

bool may_pass(const Error& error) {
  constexpr std::array kLasting = {ENOTDIR, EACCES, EPERM, EROFS, ENAMETOOLONG, ELOOP, EISDIR};
  return error.kind() == ErrorKind::kIo &&
         std::find(kLasting.begin(), kLasting.end(), error.system_error()) == kLasting.end();
}

}  // namespace finetune::checkpoint
