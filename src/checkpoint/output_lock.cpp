// SPDX-License-Identifier: MIT
#include "finetune/checkpoint/output_lock.h"

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/log.h"
#include "finetune/base/mount.h"
#include "finetune/base/trash_safe.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/checkpoint/owner.h"

namespace finetune::checkpoint {
namespace {

std::string recorded_owner(const std::string& path) {
  try {
    const std::optional<Owner> owner = parse_owner(FileSystem::local().read_all(path, 4096));
    if (owner) return describe(*owner);
  } catch (const Error&) {  // the folder is in use, but the owner is unknown
  }
  return "another process";
}

// "a prepare_output_dir", "an output_dir"
std::string one(const std::string& key) { return (key.starts_with('o') ? "an " : "a ") + key; }

[[noreturn]] void fail(const std::string& path, int error, const std::string& key) {
  const FileType type = FileSystem::local().type(path);
  if (type == FileType::kLink || type == FileType::kOther) {
    throw Error(ErrorKind::kIo,
                "cannot lock '" + path +
                    "': it is a link, FIFO or device where a regular file is needed; remove it",
                error);
  }
  throw Error(ErrorKind::kIo,
              "cannot lock '" + path + "': " + std::strerror(error) + "; choose " + one(key) +
                  " that you may write to",
              error);
}

// Creates the folder durably: if its name is lost in a power failure, so is its content. An earlier
// start may have been killed between creating and syncing it, so the parent is synced every time.
void make_durable(FileSystem& files, const std::string& folder) {
  try {
    std::vector<std::string> missing;
    for (std::string path = folder; !files.exists(path); path = parent_path(path)) {
      missing.push_back(path);
    }
    files.make_directories(folder);
    for (const std::string& path : missing) files.sync_directory(parent_path(path));
    if (missing.empty()) files.sync_directory(parent_path(folder));
  } catch (const Error& error) {
    log::debug(std::string("a power cut may lose the output folder: ") + error.what());
  }
}

}  // namespace

OutputLock::OutputLock(const std::string& output_dir, LeaseOptions options) {
  make_durable(FileSystem::local(), output_dir);
  try {
    FileSystem::local().make_directories(output_dir);
  } catch (const Error& error) {
    const std::string why(error.what());
    throw Error(
        error.kind(),
        why.substr(0, why.find(';')) + "; choose " + one(options.key) + " that you may write to",
        error.system_error());
  }
  if (options.shown.empty()) options.shown = output_dir;
  options.folder = output_dir;
  options.files = shared_local_files();
  const std::optional<Mount> mount = mount_of(output_dir);
  options.kernel_lock = take_kernel_lock(join_path(output_dir, kLockFile), options) && mount &&
                        !is_remote_type(mount->type);
  lease_.emplace(std::move(options));
}

bool OutputLock::take_kernel_lock(const std::string& path, const LeaseOptions& options) {
  if (!file_.open(path)) fail(path, file_.error(), options.key);
  const LockedFile::Outcome outcome = file_.lock();
  if (outcome == LockedFile::Outcome::kLocked) return true;
  if (outcome == LockedFile::Outcome::kHeld) {
    throw Error(ErrorKind::kBusy, "'" + options.shown + "' is in use by " + recorded_owner(path) +
                                      "; wait until it is finished, stop it, or choose another " +
                                      options.key);
  }
  const int error = file_.error();
  if (error != ENOSYS && error != EOPNOTSUPP && error != ENOLCK && error != EINVAL) {
    fail(path, error, options.key);
  }
  return false;
}

}  // namespace finetune::checkpoint
