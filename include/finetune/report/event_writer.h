// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "finetune/base/file_system.h"

// TensorBoard event files, as torch's SummaryWriter writes them, without protobuf.
namespace finetune {

// Writes one file `events.out.tfevents.<seconds>.<host>.<pid>.<n>` into `folder`. Not thread-safe.
//
// The constructor throws Error(kIo) where the folder cannot be written. After that a curve is not
// worth a run: a write that fails is one warning, and nothing more is written.
class EventWriter {
 public:
  // purge_step >= 0: TensorBoard hides every event of earlier files in this folder whose step is
  // purge_step or more. A run that resumes at step N gives N + 1, so that no curve has doubles.
  EventWriter(FileSystem& files, const std::string& folder, int64_t purge_step = -1);
  ~EventWriter();  // flushes
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  // Any double, NaN and infinity included; stored as float, TensorBoard's own precision.
  void add_scalar(std::string_view tag, double value, int64_t step);
  // Shown under "Text" as Markdown; transformers logs "args" and "model_config" there at step 0.
  void add_text(std::string_view tag, std::string_view text, int64_t step);

  // Hands everything so far to the operating system (no fsync). Call after each logged step.
  void flush();

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  void add_event(int64_t step, std::string_view payload);

  std::string path_;
  std::unique_ptr<WritableFile> file_;  // null after a failed write
  std::string pending_;
};

// transformers' name of a logged key: "eval_loss" -> "eval/loss", "test_x" -> "test/x", everything
// else ("loss", "train_runtime") -> "train/...".
[[nodiscard]] std::string tensorboard_tag(std::string_view key);

// The folder under `runs` that all sessions of one run share: the one that has the newest event
// file, else a new `<Mon><dd>_<hh>-<mm>-<ss>_<host>` (not yet made), as transformers names it.
[[nodiscard]] std::string tensorboard_folder(FileSystem& files, const std::string& runs);

}  // namespace finetune
