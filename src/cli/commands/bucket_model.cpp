// SPDX-License-Identifier: MIT
#include "cli/commands/bucket_model.h"

#include <memory>
#include <optional>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/hash.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/base/trash_safe.h"
#include "finetune/checkpoint/bucket.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/checkpoint/restore.h"
#include "finetune/config/load.h"

namespace finetune::cli {
namespace {

constexpr uint64_t kMaxManifestBytes = uint64_t{64} << 20;

// Whether the folder holds the finished model of the bucket, undamaged.
bool is_current(FileSystem& bucket, const std::string& location, const std::string& folder) {
  FileSystem& local = FileSystem::local();
  const std::string here = join_path(folder, checkpoint::kManifestFile);
  const std::string there = join_path(location, checkpoint::kManifestFile);
  return local.exists(here) && bucket.exists(there) &&
         local.read_all(here, kMaxManifestBytes) == bucket.read_all(there, kMaxManifestBytes) &&
         checkpoint::inspect_finished_model(local, folder, true).is_valid();
}

}  // namespace

std::string local_model(const std::string& location) {
  if (!checkpoint::is_bucket(location)) return location;
  const std::string cache = load_config("", {}).args.cache_dir;
  const std::string folder = join_path(join_path(cache, "buckets"), hash_hex(location));
  const std::shared_ptr<FileSystem> bucket = checkpoint::bucket_files(location);
  const checkpoint::RestoreOptions back = {
      .local = shared_local_files(),
      .output_dir = folder,
      .files = bucket,
      .mirror_dir = location,
      .report = [](const std::string& line) { log::warning(line); }};
  checkpoint::reach_mirror(back);
  if (is_current(*bucket, location, folder)) return folder;
  FileSystem::local().remove_tree(folder);
  FileSystem::local().make_directories(folder);
  log::info(format_text("copying the model of '{}' to '{}'", location, folder));
  if (checkpoint::restore_finished(back, std::nullopt)) return folder;
  if (const std::optional<int64_t> step = checkpoint::restore_newest(back, std::nullopt)) {
    return join_path(folder, checkpoint::checkpoint_name(*step));
  }
  throw Error(ErrorKind::kUsage, "'" + location +
                                     "' holds no finished model and no checkpoint; name " +
                                     "the mirror_dir of a run");
}

}  // namespace finetune::cli
