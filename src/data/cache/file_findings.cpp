// SPDX-License-Identifier: MIT
#include "data/cache/file_findings.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "data/cache/file_identity.h"
#include "finetune/base/clock.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/hash.h"
#include "finetune/base/json.h"
#include "finetune/base/version.h"
#include "finetune/data/cache_entries.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

std::string checksum_of(const std::string& files, const Json& found) {
  return hash_hex(files + found.dump());
}

// Sets the file's time to its last use, to the day. Best effort: the folder may be read-only.
void note_use(const std::string& path) {
  constexpr int64_t kDay = 24 * 3600;
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0 ||
      static_cast<int64_t>(unix_seconds()) - status.st_mtime < kDay)
    return;
  static_cast<void>(::utimensat(AT_FDCWD, path.c_str(), nullptr, 0));
}

// Whether `path` contains a valid answer about these files in their current state.
bool take_earlier(const std::string& path, const std::string& files,
                  const std::function<void(const Json&)>& accept) {
  try {
    const Json json = read_json_file(path);
    const Json& found = json.at("found");
    if (json.at("files").get<std::string>() != files ||
        json.at("checksum").get<std::string>() != checksum_of(files, found)) {
      return false;
    }
    accept(found);
    note_use(path);
    return true;
  } catch (const Error&) {
  } catch (const nlohmann::json::exception&) {
  }
  return false;
}

}  // namespace

void answer_from_files(const TokenCacheOptions& cache, const FileQuestion& question,
                       const std::function<Json()>& find,
                       const std::function<void(const Json&)>& accept) {
  if (cache.folder.empty()) {
    accept(find());
    return;
  }
  FT_CHECK(std::ranges::find(kFindings, question.kind) != kFindings.end(),
           "a kind of question that is never removed: " + question.kind);
  const Json asked = {{"version", kVersion},
                      {"reading", kReadingVersion},
                      {"files", question.files},
                      {"options", question.options}};
  const std::string path =
      join_path(join_path(cache.folder, question.kind), hash_hex(asked.dump()) + ".json");
  const std::string files =
      hash_hex(identities_json(identify_files(question.files, cache.show)).dump());
  if (!cache.overwrite && take_earlier(path, files, accept)) return;
  const Json found = find();
  accept(found);
  const Json kept = {{"found", found}, {"files", files}, {"checksum", checksum_of(files, found)}};
  try {
    FileSystem::local().make_directories(parent_path(path));
    FileSystem::local().write_atomically(path, kept.dump(1) + "\n");
  } catch (const Error&) {  // compute it again next time
  }
}

}  // namespace finetune
