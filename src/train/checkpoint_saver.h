// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "finetune/base/background_task.h"
#include "finetune/base/file_system.h"
#include "finetune/checkpoint/rotation.h"
#include "finetune/checkpoint/writer.h"
#include "finetune/tensor/snapshot.h"

namespace finetune {

// One save: what is written, and what is deleted once it is whole.
struct SaveRequest {
  checkpoint::CheckpointIdentity identity;
  std::vector<checkpoint::CheckpointFile> contents = {};
  uint64_t bytes = 0;  // of all contents, about
  checkpoint::RotationPolicy rotation = {};
  // What the contents read; without one they read what an update would change, so none may come
  // before they are written.
  std::shared_ptr<Snapshot> snapshot = nullptr;
};

struct SaveOutcome {
  int64_t step = 0;
  bool committed = false;
  double seconds = 0.0;            // from the request to the commit
  double stall_seconds = 0.0;      // in which training waited for it
  double processor_seconds = 0.0;  // of the thread that wrote
  // The part of the state that contains NaN or Inf; nothing was committed, and there is no retry.
  std::optional<std::string> nonfinite = {};
};

// Writes checkpoints concurrently with training: one at a time, on a dedicated thread. Training
// waits only if an update comes before everything is written, and then no longer than a copy takes.
// Errors are logged once per save; a failed save is retried once, in a fresh folder. Used from one
// thread.
class CheckpointSaver {
 public:
  struct Options {
    std::string output_dir;
    bool in_background = true;
    // Whether there is memory for a copy of that size now; else an update waits for the writer.
    std::function<bool(uint64_t bytes)> has_room = [](uint64_t) { return true; };
    // Called on the writing thread before each commit; throws Error where it must not come about.
    std::function<void()> before_commit = nullptr;
    // Called on the writing thread, behind each commit and before the rotation.
    std::function<void(const std::string& path, const checkpoint::RotationPolicy& rotation)>
        on_commit = nullptr;
  };

  CheckpointSaver(FileSystem& files, Options options);

  [[nodiscard]] bool is_busy() const { return task_.is_running(); }
  // Requires: not busy, and the last outcome taken.
  void start(SaveRequest request);
  // Allocates the memory of a copy of that size before the first one is needed, in the background:
  // fresh pages cost more than copying into them. It is kept between saves.
  void reserve(uint64_t bytes);
  // Before anything changes that a snapshot holds: copies it, or waits for the writer.
  void before_update();
  // Training stood still for the save for so long, beside what wait() counts.
  void add_stall(double seconds) { stalled_ += seconds; }
  // Waits, no longer than `seconds`; whether nothing is being written any more.
  bool wait(std::optional<double> seconds = std::nullopt);
  // What became of the last save, once. Nothing while it is being written.
  [[nodiscard]] std::optional<SaveOutcome> take_outcome();

 private:
  bool copy();
  void write(const SaveRequest& request);
  enum class Try { kCommitted, kFailed, kNonFinite };
  // `problem`: why it failed, or what is not finite.
  Try try_to_commit(const SaveRequest& request, std::string& problem) const;

  FileSystem& files_;
  Options options_;
  std::shared_ptr<Snapshot> snapshot_;
  std::shared_ptr<HostPages> pages_;  // of copies
  bool holds_tensors_ = false;
  double started_ = 0.0;
  double stalled_ = 0.0;
  // Of the writing thread while it is busy, of the other one else.
  std::optional<SaveOutcome> outcome_;
  BackgroundTask task_;  // last: it ends before what it uses
};

}  // namespace finetune
