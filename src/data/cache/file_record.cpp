// SPDX-License-Identifier: MIT
#include "finetune/data/file_record.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/cache/file_contents.h"
#include "data/cache/file_findings.h"
#include "data/cache/file_identity.h"
#include "data/readers/byte_source.h"
#include "finetune/base/error.h"
#include "finetune/base/hash.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kBytes = "bytes";

// Thrown if the cache does not have the answer.
struct Unknown {};

std::string contents_hash(const std::vector<std::string>& paths,
                          const std::vector<std::string>& hashes) {
  Hasher hasher;
  for (size_t i = 0; i < paths.size(); ++i) {
    hasher.update(ending_of(paths[i]) + "\n" + hashes.at(i) + "\n");
  }
  return hasher.hex();
}

}  // namespace

std::string ending_of(const std::string& path) {
  const std::string_view plain = without_packing(path);
  return std::filesystem::path(plain).extension().string() + path.substr(plain.size());
}

FileRecord look_at_files(const std::vector<std::string>& paths, const ShowStep& show) {
  const std::vector<FileIdentity> identities = identify_files(paths, show);
  FileRecord record{.files = std::ssize(paths),
                    .seen = hash_hex(identities_json(identities).dump())};
  for (const FileIdentity& file : identities) record.bytes += file.size;
  return record;
}

std::string remembered_hash(const TokenCacheOptions& cache, const std::string& what,
                            const std::vector<std::string>& paths,
                            const std::function<std::string()>& compute) {
  // Changed files are detected anyway; overwrite_cache only applies to tokens.
  TokenCacheOptions options = cache;
  options.overwrite = false;
  std::string hash;
  answer_from_files(
      options, {.kind = "contents", .files = paths, .options = {{"hash", what}}},
      [&] { return Json(compute()); },
      [&](const Json& found) {
        hash = found.get<std::string>();
        if (hash.empty()) throw Error(ErrorKind::kData, "no hash");
      });
  return hash;
}

std::string contents_of_files(const TokenCacheOptions& cache,
                              const std::vector<std::string>& paths) {
  return remembered_hash(cache, kBytes, paths, [&] {
    LongStep step = LongStep::of_bytes({.phase = "hash", .doing = "hashing files"},
                                       look_at_files(paths).bytes, cache.show);
    std::vector<std::string> hashes;
    for (const std::string& path : paths) {
      hashes.push_back(hash_of_file(path, [&](uint64_t bytes) { step.add_bytes(bytes); }));
    }
    return contents_hash(paths, hashes);
  });
}

std::string known_contents(const TokenCacheOptions& cache, const std::vector<std::string>& paths) {
  try {
    return remembered_hash(cache, kBytes, paths, []() -> std::string { throw Unknown(); });
  } catch (const Unknown&) {
    return "";
  }
}

void note_contents(const TokenCacheOptions& cache, const std::vector<std::string>& paths,
                   const std::vector<std::string>& hashes) {
  static_cast<void>(
      remembered_hash(cache, kBytes, paths, [&] { return contents_hash(paths, hashes); }));
}

}  // namespace finetune
