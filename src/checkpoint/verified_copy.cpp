// SPDX-License-Identifier: MIT
#include "checkpoint/verified_copy.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <random>
#include <vector>

#include "finetune/base/log.h"
#include "finetune/base/text.h"

namespace finetune::checkpoint {
namespace {

constexpr double kFirstRetryPause = 0.25;
constexpr double kLongestRetryPause = 4.0;

std::unique_ptr<ReadableFile> open_source(const CopyLocations& locations, const std::string& path) {
  try {
    return locations.from.open(path);
  } catch (const Error& error) {
    throw SourceError(error.kind(), error.what(), error.system_error());
  }
}

void stream(const CopyLocations& locations, const std::string& from, WritableFile& to,
            uint64_t max_bytes = std::numeric_limits<uint64_t>::max()) {
  const std::unique_ptr<ReadableFile> source = open_source(locations, from);
  const uint64_t size = std::min(source->size(), max_bytes);
  std::string block(static_cast<size_t>(std::min(size, kBlockBytes)), '\0');
  for (uint64_t offset = 0; offset < size; offset += kBlockBytes) {
    locations.may_continue();
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

FileRecord copy_file(const CopyLocations& locations, const std::string& from,
                     const std::string& to) {
  // A file that failed to sync cannot be trusted, so a retry never reuses it.
  if (locations.to.object_store() == nullptr && locations.to.exists(to))
    locations.to.remove_file(to);
  const std::unique_ptr<WritableFile> file = locations.to.create(to);
  RecordingFile recording(*file);
  stream(locations, from, recording);
  file->sync();
  file->close();
  return recording.record();
}

void look_until_seen(const CopyLocations& locations, const std::function<void()>& look) {
  for (double pause = kFirstRetryPause;; pause *= 2) {
    try {
      look();
      return;
    } catch (const Error& error) {
      if (error.system_error() != ENOENT || pause > kLongestRetryPause) throw;
    }
    locations.may_continue();
    locations.clock->sleep(pause);
  }
}

void read_back(const CopyLocations& locations, const std::string& path, const FileRecord& record) {
  look_until_seen(locations, [&] {
    if (!locations.reads_back) {
      const uint64_t bytes = locations.to.open(path)->size();
      if (bytes == record.bytes) return;
      throw Error(ErrorKind::kIo,
                  format_text("'{}' has {} bytes there instead of {}", path, bytes, record.bytes));
    }
    locations.to.drop_cached(path);
    verify_file(*locations.to.open(path), record, path);
  });
}

namespace {

[[noreturn]] void refuse_source(const std::string& path) {
  throw SourceError(ErrorKind::kCheckpoint,
                    "'" + path +
                        "' does not match its checksum, so it is not copied; run the same command "
                        "again to repair it");
}

FileRecord replace_object(const CopyLocations& locations, const std::string& from,
                          const std::string& to, const FileRecord* expected) {
  FileRecord record;
  if (expected != nullptr) {
    record = record_of(locations, from);
    if (record != *expected) refuse_source(from);
    locations.to.object_store()->upload({{.from = from, .to = to, .bytes = record.bytes}},
                                        locations.may_continue,
                                        [](const ObjectStore::Transfer&) {});
  } else {  // it may grow meanwhile: what is recorded is sent
    record = copy_file(locations, from, to);
  }
  read_back(locations, to, record);
  return record;
}

}  // namespace

FileRecord replace_file(const CopyLocations& locations, const std::string& from,
                        const std::string& to, const FileRecord* expected) {
  if (locations.to.object_store() != nullptr) return replace_object(locations, from, to, expected);
  static thread_local std::mt19937_64 names{std::random_device{}()};
  const std::string temporary =
      join_path(parent_path(to), format_text(".tmp-{}.{}", file_name(to), names()));
  try {
    const FileRecord record = copy_file(locations, from, temporary);
    if (expected != nullptr && record != *expected) refuse_source(from);
    read_back(locations, temporary, record);
    locations.to.rename(temporary, to);
    look_until_seen(locations, [&] { (void)locations.to.open(to); });
    return record;
  } catch (...) {
    try {
      if (locations.to.exists(temporary)) locations.to.remove_file(temporary);
    } catch (const Error&) {  // report the first failure
    }
    throw;
  }
}

FileRecord record_of(const CopyLocations& locations, const std::string& path, uint64_t max_bytes) {
  NoFile none;
  RecordingFile recording(none);
  stream(locations, path, recording, max_bytes);
  return recording.record();
}

std::map<std::string, FileRecord> copy_files(const CopyLocations& locations,
                                             const std::string& from, const std::string& to,
                                             const std::map<std::string, FileRecord>& wanted) {
  std::map<std::string, FileRecord> records;
  ObjectStore* const store = locations.from.object_store();
  if (store == nullptr) {
    for (const auto& item : wanted) {
      const std::string& name = item.first;
      make_folder_of(locations.to, to, name);
      records[name] = copy_file(locations, join_path(from, name), join_path(to, name));
    }
    return records;
  }
  std::vector<ObjectStore::Transfer> files;
  for (const auto& [name, record] : wanted) {
    make_folder_of(locations.to, to, name);
    files.push_back(
        {.from = join_path(from, name), .to = join_path(to, name), .bytes = record.bytes});
  }
  try {
    store->download(files, locations.may_continue, [](const ObjectStore::Transfer&) {});
  } catch (const Error& error) {
    if (error.system_error() == EDQUOT) throw Error(error.kind(), error.what(), ENOSPC);  // here
    throw SourceError(error.kind(), error.what(), error.system_error());
  }
  const CopyLocations here = {.from = locations.to,
                              .to = locations.to,
                              .may_continue = locations.may_continue,
                              .clock = locations.clock};
  for (const auto& item : wanted) {
    const std::string path = join_path(to, item.first);
    const std::unique_ptr<WritableFile> file = locations.to.append(path);
    file->sync();
    file->close();
    records[item.first] = record_of(here, path);
  }
  return records;
}

std::map<std::string, FileRecord> still_missing(FileSystem& local, const std::string& folder,
                                                const std::map<std::string, FileRecord>& wanted) {
  std::map<std::string, FileRecord> missing = wanted;
  for (const std::string& name : local.list(folder)) {
    const std::string path = join_path(folder, name);
    const auto expected = wanted.find(name);
    try {
      if (expected != wanted.end() && local.type(path) == FileType::kFile) {
        verify_file(*local.open(path), expected->second, path);
        missing.erase(name);
        continue;
      }
    } catch (const Error& error) {
      log::debug(std::string("copied again: ") + error.what());
    }
    local.remove_tree(path);
  }
  return missing;
}

std::optional<std::string> read_if_there(FileSystem& files, const std::string& path,
                                         uint64_t limit) {
  if (files.object_store() == nullptr) {
    if (files.type(path) != FileType::kFile) return std::nullopt;
    return files.read_all(path, limit);
  }
  try {  // a question is a request, too
    return files.read_all(path, limit);
  } catch (const Error& error) {
    if (error.system_error() != ENOENT && error.system_error() != EISDIR) throw;
    return std::nullopt;
  }
}

bool may_pass(const Error& error) {
  constexpr std::array kLasting = {ENOTDIR, EACCES, EPERM, EROFS, ENAMETOOLONG, ELOOP, EISDIR};
  return error.kind() == ErrorKind::kIo &&
         std::find(kLasting.begin(), kLasting.end(), error.system_error()) == kLasting.end();
}

}  // namespace finetune::checkpoint
