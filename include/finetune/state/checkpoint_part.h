// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "finetune/base/file_system.h"
#include "finetune/checkpoint/writer.h"
#include "finetune/tensor/snapshot.h"

namespace finetune {

// What a save contains.
enum class SaveKind {
  kCheckpoint,        // everything that resuming needs
  kWithoutOptimizer,  // save_only_model
  kModel,             // the finished model
};

struct SaveScope {
  SaveKind kind = SaveKind::kCheckpoint;
  // If not null: contains the tensors that an update changes, with their values at the time of the
  // save, so that files can be written later.
  Snapshot* snapshot = nullptr;
};

// A checkpoint folder to restore from.
struct SavedFolder {
  FileSystem& files;
  std::string path;
  bool is_foreign = false;  // written by transformers' Trainer
};

// One part of a checkpoint. A part owns the names and formats of its files: during training no
// other code writes or reads them. Calls come from one thread, between updates; the returned files
// may be written on another thread as long as the part exists.
class CheckpointPart {
 public:
  virtual ~CheckpointPart() = default;

  // Returns the files of the current state; empty if this kind of save omits the part.
  [[nodiscard]] virtual std::vector<checkpoint::CheckpointFile> save(const SaveScope& scope) = 0;
  // Returns about how many bytes save() writes; 0 if negligible.
  [[nodiscard]] virtual uint64_t bytes(SaveKind) const { return 0; }
  // Restores the state from a valid checkpoint. Logs what is not restored bit for bit. Throws
  // Error(kIo | kData | kCheckpoint).
  virtual void load(const SavedFolder&) {}
  // Returns what load() restored, for the log ("weights (124 values)"); empty: nothing.
  [[nodiscard]] virtual std::string restored() const { return ""; }
};

// The parts of a checkpoint, in the order of their files. To add a file to checkpoints, add a part:
// its file is checksummed, verified, mirrored and rotated with the others.
class CheckpointParts {
 public:
  void add(std::shared_ptr<CheckpointPart> part) { parts_.push_back(std::move(part)); }

  [[nodiscard]] std::vector<checkpoint::CheckpointFile> save(const SaveScope& scope) const;
  [[nodiscard]] uint64_t bytes(SaveKind kind) const;
  void load(const SavedFolder& folder) const;
  [[nodiscard]] std::vector<std::string> restored() const;

 private:
  std::vector<std::shared_ptr<CheckpointPart>> parts_;
};

}  // namespace finetune
