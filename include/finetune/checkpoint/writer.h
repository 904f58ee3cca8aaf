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

// Returns a file with this content.
[[nodiscard]] CheckpointFile text_file(std::string name, std::string content);

struct CheckpointIdentity {
  int64_t step = 0;
  std::string run_id;  // the same in all sessions of a run; see is_identifier()
};

// Commits output_dir/checkpoint-<step> atomically and returns its path: the files are written to a
// staging folder with a random name and synced, last of all the manifest with sizes and checksums;
// then one rename and a sync of output_dir. After the return, the checkpoint survives a power
// failure.
//
// If a valid checkpoint-<step> of the same run exists, it is kept and nothing is written. A corrupt
// one is renamed to checkpoint-<step>.bad-<k>, one of another run to .old-<k>. If it cannot be
// read, it is left unchanged and Error(kIo) is thrown.
//
// `before_commit` is called right before the rename; if it throws, nothing is renamed.
//
// `required_bytes` (0: unknown) is compared with the free space first. On failure the staging
// folder is deleted as far as possible, and Error(kIo) or the exception of a `write` is thrown;
// older checkpoints are unchanged and the call can be repeated. Requires: the output folder's lock.
std::string write_checkpoint(FileSystem& files, const std::string& output_dir,
                             const CheckpointIdentity& identity,
                             const std::vector<CheckpointFile>& contents,
                             uint64_t required_bytes = 0,
                             const std::function<void()>& before_commit = nullptr);

}  // namespace finetune::checkpoint
