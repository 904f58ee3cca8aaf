// SPDX-License-Identifier: MIT
#include "train/folder/output_folder.h"

#include "finetune/base/error.h"
#include "finetune/base/hash.h"
#include "finetune/base/log.h"
#include "finetune/base/mount.h"
#include "finetune/base/text.h"
#include "finetune/base/trash_safe.h"
#include "finetune/checkpoint/bucket.h"

namespace finetune {
namespace {

std::optional<Mount> slow_mount(const std::string& path) {
  std::optional<Mount> mount = mount_of(path);
  return mount && is_remote_type(mount->type) ? mount : std::nullopt;
}

std::string local_folder_for(const TrainingArgs& args) {
  return join_path(join_path(args.cache_dir, "runs"), hash_hex(resolved_path(args.output_dir)));
}

}  // namespace

OutputFolder::OutputFolder(const LoadedConfig& config, bool is_first)
    : config_(config), shown_(config.args.output_dir), is_first_(is_first) {
  TrainingArgs& args = config_.args;
  const std::optional<Mount> slow = slow_mount(args.output_dir);
  if (slow && !slow_mount(args.cache_dir)) {
    mirrors_.push_back(args.output_dir);
    args.output_dir = local_folder_for(config.args);
    log::info("output_dir '" + shown_ + "' is on a slow mount (" + slow->type +
              "): the run works in '" + args.output_dir + "' and copies there in the background");
  } else if (slow) {
    log::warning("output_dir '" + shown_ + "' is on a slow mount (" + slow->type +
                 "), and so does cache_dir: training waits for it and has no second place; set "
                 "cache_dir to a local folder");
  }
  if (args.mirror_dir && checkpoint::is_bucket(*args.mirror_dir)) {
    const std::string problem = checkpoint::problem_of_bucket(*args.mirror_dir);
    if (!problem.empty()) {
      refuse_key(config, "mirror_dir", "'" + *args.mirror_dir + "' " + problem);
    }
    mirrors_.push_back(*args.mirror_dir);
  } else if (args.mirror_dir) {
    if (resolved_path(*args.mirror_dir) == resolved_path(shown_)) {
      if (mirrors_.empty()) {
        throw Error(ErrorKind::kConfig, config.where("mirror_dir") +
                                            ": mirror_dir: it is the same folder as output_dir; "
                                            "name another one");
      }
    } else {
      mirrors_.push_back(*args.mirror_dir);
    }
  }
  files_ = files_for(args.output_dir);
  session_log_.emplace(*files_, is_first_ ? join_path(args.output_dir, kSessionsFile) : "");
  if (is_first_) {
    lock_.emplace(args.output_dir, checkpoint::LeaseOptions{.shown = shown_});
  } else {
    mirrors_.clear();
  }
}

std::shared_ptr<FileSystem> OutputFolder::files_for(const std::string& folder) const {
  if (checkpoint::is_bucket(folder)) return checkpoint::bucket_files(folder);
  const std::string& choice = config_.args.trash_safe_delete;
  const bool empties = choice == "true" || (choice == "auto" && slow_mount(folder));
  return empties ? trash_safe(shared_local_files()) : shared_local_files();
}

void OutputFolder::check_ours() {
  if (is_first_ && lock_->is_lost()) lock_->check();
}

}  // namespace finetune
