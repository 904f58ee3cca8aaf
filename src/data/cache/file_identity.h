// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "finetune/data/long_step.h"

namespace finetune {

class JsonFields;

// Part of the keys of what is stored about files: raised whenever the same bytes give other rows,
// columns or conversations.
inline constexpr int kReadingVersion = 2;

// Recognises a file without reading all of it. `size` and `samples` depend on the content; the
// other members only show that the file cannot have changed since they were recorded.
struct FileIdentity {
  std::string path;         // absolute
  uint64_t size = 0;        // bytes
  std::string samples;      // hash of blocks distributed over the file
  int64_t modified_ns = 0;  // since the epoch
  int64_t changed_ns = 0;   // of the inode: also reveals a modification time that was set back
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

// Throws Error(kIo) if a file cannot be read.
[[nodiscard]] FileIdentity identify_file(const std::string& path);
// Also throws Interrupted.
[[nodiscard]] std::vector<FileIdentity> identify_files(const std::vector<std::string>& paths,
                                                       const ShowStep& show = {});
// Throws Error(kData), which begins with `key`, if the files differ from `before`.
void check_unchanged(const std::vector<std::string>& paths, const std::vector<FileIdentity>& before,
                     const std::string& key, const ShowStep& show = {});
// Returns the hash of every byte. `add` is called after each chunk. Throws Error(kIo) and what
// `add` throws.
[[nodiscard]] std::string hash_of_file(const std::string& path,
                                       const std::function<void(uint64_t)>& add);

[[nodiscard]] nlohmann::ordered_json identity_json(const FileIdentity& file);
[[nodiscard]] nlohmann::ordered_json identities_json(const std::vector<FileIdentity>& files);
// Throws Error(kData) where it is none.
[[nodiscard]] FileIdentity parse_identity(const JsonFields& fields);
// A file that holds identities_json(); empty where there is none or it cannot be read.
[[nodiscard]] std::vector<FileIdentity> read_identities(const std::string& path);

}  // namespace finetune
