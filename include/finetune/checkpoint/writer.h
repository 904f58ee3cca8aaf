// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "finetune/base/file_system.h"

namespace finetune::checkpoint {

// One file of a checkpoint. `write` streams the content; the checkpoint's writer checksums, syncs
// and closes it (calling sync() or close() inside does nothing).
struct CheckpointFile {
  std::string name;
  std::function<void(WritableFile&)> write;
};

// A file whose content is at hand.
[[nodiscard]] CheckpointFile text_file(std::string name, std::string content);

struct CheckpointIdentity {
  int64_t step = 0;
  std::string run_id;  // the same in all sessions of a run; see is_identifier()
};

// Commits output_dir/checkpoint-<step> completely or not at all, and returns its path: the files
// are written to a staging folder with a random name and synced, the manifest with sizes and
// checksums last; then one rename and a sync of output_dir. After the return, the checkpoint
// survives a power cut.
//
// An existing valid checkpoint-<step> of the same run is kept, and nothing is written; a corrupt
// one is renamed to checkpoint-<step>.bad-<k>, one of another run to .old-<k>; if it cannot be
// read, it stays and nothing is written: Error(kIo).
//
// `before_commit` is called right before the rename; its exception prevents the rename.
//
// `required_bytes` (0: unknown) is compared with the free space first. On failure the staging
// folder is deleted as far as possible, and Error(kIo) or the exception of a `write` is thrown;
// older checkpoints are untouched and the caller may try again. Requires: the output folder's lock.
std::string write_checkpoint(FileSystem& files, const std::string& output_dir,
                             const CheckpointIdentity& identity,
                             const std::vector<CheckpointFile>& contents,
                             uint64_t required_bytes = 0,
                             const std::function<void()>& before_commit = nullptr);

}  // namespace finetune::checkpoint
