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

// What is saved of a run.
enum class SaveKind {
  kCheckpoint,        // everything that resuming needs
  kWithoutOptimizer,  // save_only_model
  kModel,             // the finished model
};

struct SaveScope {
  SaveKind kind = SaveKind::kCheckpoint;
  // Where given, it holds the tensors that an update changes: their values are those of now,
  // whenever the files are written.
  Snapshot* snapshot = nullptr;
};

// A checkpoint folder that is restored.
struct SavedFolder {
  FileSystem& files;
  std::string path;
  bool is_foreign = false;  // written by transformers' Trainer
};

// One part of what a checkpoint contains. A part owns the names and the formats of its files: no
// other code writes or reads them while training. Calls come from one thread, between updates; the
// returned files may be written on another thread, while the part lives.
class CheckpointPart {
 public:
  virtual ~CheckpointPart() = default;

  // The files of the present state; none where this kind of save leaves the part out.
  [[nodiscard]] virtual std::vector<checkpoint::CheckpointFile> save(const SaveScope& scope) = 0;
  // About how many bytes save() writes; 0 where they do not matter.
  [[nodiscard]] virtual uint64_t bytes(SaveKind) const { return 0; }
  // Restores the state from a valid checkpoint. What is not restored bit for bit is logged. Throws
  // Error(kIo | kData | kCheckpoint).
  virtual void load(const SavedFolder&) {}
  // After load(): what was restored, for the log ("weights (124 values)"); empty: nothing.
  [[nodiscard]] virtual std::string restored() const { return ""; }
};

// The parts of a checkpoint, in the order of their files. A new file of a checkpoint is a new part:
// it is checksummed, verified, mirrored and rotated with the others.
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
