// SPDX-License-Identifier: MIT
#include "data/cache/file_identity.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/hash.h"
#include "finetune/base/json.h"
#include "finetune/base/json_fields.h"
#include "finetune/base/mount.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kSample = 4096;
constexpr uint64_t kBytesPerSample = uint64_t{16} << 20;
constexpr uint64_t kMostSamples = 64;

int64_t nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + int64_t{time.tv_nsec};
}

// Hashes the first and the last block, and some between.
std::string hash_of_samples(const ReadableFile& file) {
  const uint64_t size = file.size();
  const uint64_t count = std::clamp<uint64_t>(size / kBytesPerSample, 2, kMostSamples);
  std::string block;
  Hasher hasher;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t room = size > kSample ? size - kSample : 0;
    const uint64_t begin = room / (count - 1) * i + room % (count - 1) * i / (count - 1);
    block.resize(std::min(kSample, size - begin));
    file.read_at(begin, block.data(), block.size());
    hasher.update(block);
  }
  return hasher.hex();
}

}  // namespace

FileIdentity identify_file(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) {
    const int error = errno;
    throw Error(ErrorKind::kIo, "cannot look at '" + path + "': " + std::strerror(error), error);
  }
  const auto file = FileSystem::local().open(path);
  return {.path = resolved_path(path),
          .size = file->size(),
          .samples = hash_of_samples(*file),
          .modified_ns = nanoseconds(status.st_mtim),
          .changed_ns = nanoseconds(status.st_ctim)};
}

std::vector<FileIdentity> identify_files(const std::vector<std::string>& paths,
                                         const ShowStep& show) {
  LongStep step({.phase = "look at files", .doing = "looking at files", .unit = "file"},
                std::ssize(paths), show);
  std::vector<FileIdentity> files;
  for (const std::string& path : paths) {
    files.push_back(identify_file(path));
    step.advance();
  }
  return files;
}

void check_unchanged(const std::vector<std::string>& paths, const std::vector<FileIdentity>& before,
                     const std::string& key, const ShowStep& show) {
  if (identify_files(paths, show) == before) return;
  throw Error(ErrorKind::kData,
              key +
                  ": a file has changed while it was read; run the same command again when nothing "
                  "writes to it any more");
}

std::string hash_of_file(const std::string& path, const std::function<void(uint64_t)>& add) {
  const auto file = FileSystem::local().open(path);
  std::string block(std::min<uint64_t>(file->size(), uint64_t{1} << 20), '\0');
  Hasher hasher;
  for (uint64_t at = 0; at < file->size();) {
    const auto count = static_cast<size_t>(std::min<uint64_t>(block.size(), file->size() - at));
    file->read_at(at, block.data(), count);
    hasher.update(block.data(), count);
    at += count;
    add(count);
  }
  return hasher.hex();
}

Json identity_json(const FileIdentity& file) {
  return {{"path", file.path},
          {"size", file.size},
          {"samples", file.samples},
          {"modified_ns", file.modified_ns},
          {"changed_ns", file.changed_ns}};
}

Json identities_json(const std::vector<FileIdentity>& files) {
  Json list = Json::array();
  for (const FileIdentity& file : files) list.push_back(identity_json(file));
  return list;
}

FileIdentity parse_identity(const JsonFields& fields) {
  return {.path = fields.text("path"),
          .size = fields.unsigned_integer("size"),
          .samples = fields.text("samples"),
          .modified_ns = fields.integer("modified_ns"),
          .changed_ns = fields.integer("changed_ns")};
}

std::vector<FileIdentity> read_identities(const std::string& path) {
  std::vector<FileIdentity> files;
  try {
    for (const Json& file : read_json_file(path)) {
      files.push_back(parse_identity(JsonFields(file, path)));
    }
  } catch (const Error&) {
    files.clear();
  }
  return files;
}

}  // namespace finetune
