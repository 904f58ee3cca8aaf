// SPDX-License-Identifier: MIT
#include <nlohmann/json.hpp>
#include <optional>

#include "data/file_identity.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/hash.h"
#include "finetune/base/json.h"
#include "finetune/data/data_files.h"
#include "finetune/data/token_cache.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// What an earlier count left at `path`, where the files are still those.
std::optional<int64_t> read_count(const std::string& path, const std::string& files) {
  constexpr int64_t kMostRows = int64_t{1} << 49;
  try {
    const Json json = read_json_file(path);
    const auto rows = json.at("rows").get<int64_t>();
    if (json.at("files").get<std::string>() != files || rows < 0 || rows > kMostRows ||
        json.at("checksum").get<std::string>() != hash_hex(files + std::to_string(rows))) {
      return std::nullopt;
    }
    return rows;
  } catch (const Error&) {
  } catch (const nlohmann::json::exception&) {
  }
  return std::nullopt;
}

}  // namespace

int64_t count_rows(const std::vector<std::string>& patterns, const std::string& key,
                   const TokenCacheOptions& cache) {
  if (cache.folder.empty()) return count_rows(patterns, key);
  const std::vector<std::string> names = expand_files(patterns, key);
  std::string paths;
  for (const std::string& name : names) paths += name + '\n';
  const std::string path = join_path(join_path(cache.folder, "rows"), hash_hex(paths) + ".json");
  const std::string files = hash_hex(identities_json(identify_files(names)).dump());
  if (const auto known = cache.overwrite ? std::nullopt : read_count(path, files)) return *known;
  const int64_t rows = count_rows(names, key);
  const Json found = {
      {"rows", rows}, {"files", files}, {"checksum", hash_hex(files + std::to_string(rows))}};
  try {
    FileSystem::local().make_directories(parent_path(path));
    FileSystem::local().write_atomically(path, found.dump(1) + "\n");
  } catch (const Error&) {  // counted again next time
  }
  return rows;
}

}  // namespace finetune
