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

// Commits output_dir/checkpoint-<step> whole or not at all, and returns its path: the files go to a
// staging folder with a random name and are synced, the manifest with sizes and checksums last;
// then one rename and a sync of output_dir. When this returns, the checkpoint survives a power cut.
//
// A valid checkpoint-<step> of the same run that is already there is kept, and nothing is written;
// an invalid one is renamed to checkpoint-<step>.bad-<k>, one of another run to .old-<k>; one that
// cannot be read stays, and nothing is written: Error(kIo).
//
// `before_commit` is called right before the rename; what it throws prevents it.
//
// `required_bytes` (0: unknown) is compared with the free space first. On any failure the staging
// folder is removed as far as possible and Error(kIo), or whatever a `write` threw, leaves; older
// checkpoints are untouched and the caller may try again. Requires: the output folder's lock.
std::string write_checkpoint(FileSystem& files, const std::string& output_dir,
                             const CheckpointIdentity& identity,
                             const std::vector<CheckpointFile>& contents,
                             uint64_t required_bytes = 0,
                             const std::function<void()>& before_commit = nullptr);

}  // namespace finetune::checkpoint
