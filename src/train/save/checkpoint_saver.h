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

// One save: what to write, and what to delete after it is complete.
struct SaveRequest {
  checkpoint::CheckpointIdentity identity;
  std::vector<checkpoint::CheckpointFile> contents = {};
  uint64_t bytes = 0;  // of all contents, approximately
  checkpoint::RotationPolicy rotation = {};
  // The tensors that the contents read. Null: the contents read the run's own tensors, so no update
  // may start until they are written.
  std::shared_ptr<Snapshot> snapshot = nullptr;
};

struct SaveOutcome {
  int64_t step = 0;
  bool committed = false;
  double seconds = 0.0;            // from the request to the commit
  double stall_seconds = 0.0;      // time that training waited for it
  double processor_seconds = 0.0;  // CPU time of the writing thread
  // The part of the state that contains NaN or Inf. Nothing was committed then, and there is no
  // retry.
  std::optional<std::string> nonfinite = {};
};

// Writes checkpoints concurrently with training, one at a time on a dedicated thread. Training
// waits only if an update starts before everything is written, and then at most for a copy of the
// tensors. Errors are logged once per step; a failed save is retried once in a new folder. Call it
// from one thread only.
class CheckpointSaver {
 public:
  struct Options {
    std::string output_dir;
    bool in_background = true;
    // Returns whether memory has room for a copy of that size now; otherwise an update waits for
    // the writer.
    std::function<bool(uint64_t bytes)> has_room = [](uint64_t) { return true; };
    // Whether the device may hold a copy of its tensors while they are written.
    bool copies_on_device = false;
    // Called on the writing thread before each commit; throws Error to prevent the commit.
    std::function<void()> before_commit = nullptr;
    // Called on the writing thread after each commit and before the rotation.
    std::function<void(const std::string& path, const checkpoint::RotationPolicy& rotation)>
        on_commit = nullptr;
  };

  CheckpointSaver(FileSystem& files, Options options);

  [[nodiscard]] bool is_busy() const { return task_.is_running(); }
  // Requires: not busy, and the last outcome was taken.
  void start(SaveRequest request);
  // Allocates the memory of a copy of that size in the background before the first copy, because
  // writing to new pages costs more than the copy itself. The memory is kept between saves.
  void reserve(uint64_t bytes);
  // Call before tensors of a snapshot change: copies them, or waits for the writer.
  void before_update();
  // Adds time that training waited for the save, in addition to the time in wait().
  void add_stall(double seconds) { stalled_ += seconds; }
  // Waits at most `seconds`; returns whether the writer is idle.
  bool wait(std::optional<double> seconds = std::nullopt);
  // Returns the outcome of the last save, once. Nullopt while it is being written.
  [[nodiscard]] std::optional<SaveOutcome> take_outcome();

 private:
  bool copy();
  void write(const SaveRequest& request);
  enum class Try { kCommitted, kFailed, kNonFinite };
  // `problem` receives why it failed, or which part is not finite.
  Try try_to_commit(const SaveRequest& request, std::string& problem);
  // Deletes now what rotation would delete after this save, but never the newest checkpoint.
  // Returns whether there was any.
  bool make_room(const SaveRequest& request, const std::string& problem) const;
  [[nodiscard]] static std::string advice_on_space(const SaveRequest& request);

  FileSystem& files_;
  Options options_;
  std::shared_ptr<Snapshot> snapshot_;
  std::shared_ptr<HostPages> pages_;  // memory of copies
  bool holds_tensors_ = false;
  double started_ = 0.0;
  double stalled_ = 0.0;
  // Owned by the writing thread while it is busy, else by the caller's thread.
  bool is_full_ = false;                     // the last attempt found no space
  std::optional<int64_t> warned_step_ = {};  // the last one that was reported as not saved
  std::optional<SaveOutcome> outcome_;
  BackgroundTask task_;  // last member, so that it ends before the members that it uses
};

}  // namespace finetune
