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
// The constructor throws Error(kIo) if the folder cannot be written. Later failures do not stop the
// run: the first failed write is logged as a warning, and nothing more is written.
class EventWriter {
 public:
  // purge_step >= 0: TensorBoard hides all events in earlier files of this folder whose step is at
  // least purge_step. A run that resumes at step N passes N + 1, so that no point is shown twice.
  EventWriter(FileSystem& files, const std::string& folder, int64_t purge_step = -1);
  ~EventWriter();  // flushes
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  // Accepts any double, including NaN and Inf; stored as float, TensorBoard's precision.
  void add_scalar(std::string_view tag, double value, int64_t step);
  // Adds Markdown shown under "Text"; transformers logs "args" and "model_config" there at step 0.
  void add_text(std::string_view tag, std::string_view text, int64_t step);

  // Writes all pending events to the operating system (no fsync). Call after each logged step.
  void flush();

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  void add_event(int64_t step, std::string_view payload);

  std::string path_;
  std::unique_ptr<WritableFile> file_;  // null after a failed write
  std::string pending_;
};

// Returns transformers' TensorBoard tag for a logged key: "eval_loss" -> "eval/loss", "test_x" ->
// "test/x", all others ("loss", "train_runtime") -> "train/...".
[[nodiscard]] std::string tensorboard_tag(std::string_view key);

// Returns the folder under `runs` that all sessions of a run share: the one with the newest event
// file, else a new name `<Mon><dd>_<hh>-<mm>-<ss>_<host>` as in transformers (not created).
[[nodiscard]] std::string tensorboard_folder(FileSystem& files, const std::string& runs);

}  // namespace finetune
