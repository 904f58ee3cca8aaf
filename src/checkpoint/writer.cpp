// SPDX-License-Identifier: MIT
#include "finetune/checkpoint/writer.h"

#include <cerrno>
#include <memory>

#include "finetune/base/clock.h"
#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/checkpoint/manifest.h"
#include "finetune/checkpoint/reader.h"

namespace finetune::checkpoint {
namespace {

// Creates folders durably: a new folder survives a power failure only if its parent was synced.
void make_durable_directories(FileSystem& files, const std::string& path) {
  if (files.exists(path)) return;
  make_durable_directories(files, parent_path(path));
  files.make_directory(path);
  files.sync_directory(parent_path(path));
}

FileRecord write_file(FileSystem& files, const std::string& path,
                      const std::function<void(WritableFile&)>& write) {
  const std::unique_ptr<WritableFile> file = files.create(path);
  RecordingFile recording(*file);
  write(recording);
  file->sync();
  file->close();
  return recording.record();
}

void check_space(FileSystem& files, const std::string& output_dir, uint64_t required_bytes) {
  if (required_bytes == 0) return;
  const uint64_t needed = required_bytes + required_bytes / 20;
  const uint64_t free = files.free_bytes(output_dir);
  if (free >= needed) return;
  throw Error(ErrorKind::kIo,
              format_text("'{}' has {} free where a checkpoint needs {}; free some space",
                          output_dir, bytes_text(free), bytes_text(needed)),
              ENOSPC);
}

// Returns whether this checkpoint exists already; anything else with its name is renamed.
bool is_already_there(FileSystem& files, const std::string& output_dir, const std::string& target,
                      const CheckpointIdentity& identity) {
  if (!files.exists(target)) return false;
  const CheckpointEntry entry = inspect_checkpoint(files, target, true);
  if (entry.whole && entry.run_id == identity.run_id) return true;
  // An unreadable one may be valid: only a checkpoint that was read and found corrupt is
  // quarantined.
  if (entry.unreadable) throw Error(ErrorKind::kIo, target + ": " + entry.problem);
  quarantine(files, output_dir, identity.step,
             entry.whole ? QuarantineReason::kOld : QuarantineReason::kBad);
  return false;
}

void write_staging(FileSystem& files, const std::string& staging,
                   const CheckpointIdentity& identity,
                   const std::vector<CheckpointFile>& contents) {
  files.make_directory(staging);
  Manifest manifest;
  manifest.run_id = identity.run_id;
  manifest.step = identity.step;
  manifest.created_unix = static_cast<int64_t>(unix_seconds());
  for (const CheckpointFile& content : contents) {
    FT_CHECK(is_checkpoint_file_name(content.name) && content.name != kManifestFile,
             "a checkpoint's file is called " + content.name);
    make_folder_of(files, staging, content.name);
    const FileRecord record = write_file(files, join_path(staging, content.name), content.write);
    FT_CHECK(manifest.files.emplace(content.name, record).second, "written twice: " + content.name);
  }
  const std::string text = manifest_text(manifest);
  write_file(files, join_path(staging, kManifestFile),
             [&](WritableFile& file) { file.write(text); });
  for (const CheckpointFile& content : contents) {
    if (content.name.find('/') == std::string::npos) continue;
    files.sync_directory(parent_path(join_path(staging, content.name)));
  }
  files.sync_directory(staging);
}

}  // namespace

CheckpointFile text_file(std::string name, std::string content) {
  return {.name = std::move(name),
          .write = [content = std::move(content)](WritableFile& file) { file.write(content); }};
}

std::string write_checkpoint(FileSystem& files, const std::string& output_dir,
                             const CheckpointIdentity& identity,
                             const std::vector<CheckpointFile>& contents, uint64_t required_bytes,
                             const std::function<void()>& before_commit) {
  FT_CHECK(identity.step >= 0 && is_identifier(identity.run_id), "a checkpoint's identity");
  const std::string target = join_path(output_dir, checkpoint_name(identity.step));
  make_durable_directories(files, output_dir);
  if (is_already_there(files, output_dir, target, identity)) {
    files.sync_directory(output_dir);  // an earlier commit may have failed just before this
    return target;
  }
  check_space(files, output_dir, required_bytes);

  const std::string staging =
      join_path(output_dir, staging_name(identity.step, identity.run_id, random_identifier()));
  try {
    write_staging(files, staging, identity, contents);
    if (before_commit) before_commit();
    files.rename_new(staging, target);
  } catch (...) {
    try {
      files.remove_tree(staging);
    } catch (...) {  // report the first failure; a later start deletes the rest
    }
    throw;
  }
  files.sync_directory(output_dir);
  return target;
}

}  // namespace finetune::checkpoint
