// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace finetune {

// Says how many programs were compiled, on a device that compiles its operators for each shape: a
// line after each step with new ones, and in a step that compiles for long one each half minute, so
// that nobody takes it for a run that hangs. Does nothing on other devices.
class CompileProgress {
 public:
  struct Options {
    double seconds = 30.0;              // between two lines in a step
    std::function<int64_t()> programs;  // compiled in all sessions; null: nothing is said
  };
  explicit CompileProgress(Options options);
  CompileProgress(const CompileProgress&) = delete;
  CompileProgress& operator=(const CompileProgress&) = delete;
  ~CompileProgress();

  void start(int64_t step);  // of the session; `step` is done
  void after_step(int64_t step);

 private:
  void watch();

  const Options options_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_ended_ = false;
  int64_t step_ = 0;     // finished
  double since_ = 0.0;   // the last step's end
  int64_t first_ = 0;    // programs at the last step's end
  std::thread watcher_;  // the last member: uses the others
};

// Those of TorchTPU on a TPU.
[[nodiscard]] CompileProgress::Options compile_progress_of(const c10::Device& device);

}  // namespace finetune
