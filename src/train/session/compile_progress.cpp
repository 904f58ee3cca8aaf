// SPDX-License-Identifier: MIT
#include "train/session/compile_progress.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/report/duration_text.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/tpu.h"

namespace finetune {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string programs_text(int64_t count) {
  return format_text("{} {}", count, count == 1 ? "program" : "programs");
}

}  // namespace

CompileProgress::CompileProgress(Options options) : options_(std::move(options)) {}

void CompileProgress::start(int64_t step) {
  if (!options_.programs) return;
  step_ = step;
  since_ = now();
  first_ = options_.programs();
  watcher_ = std::thread([this] { watch(); });
}

CompileProgress::~CompileProgress() {
  if (!watcher_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_ended_ = true;
  }
  ended_.notify_one();
  watcher_.join();
}

void CompileProgress::after_step(int64_t step) {
  if (!options_.programs) return;
  const int64_t found = options_.programs();
  const std::lock_guard lock(mutex_);
  if (found > first_) {
    log::info(format_text("step {}: XLA compiled {} for it, in {}", step,
                          programs_text(found - first_), duration_text(now() - since_)));
  }
  step_ = step;
  since_ = now();
  first_ = found;
}

// A process that is killed meanwhile loses nothing: this thread only reads.
void CompileProgress::watch() {
  std::unique_lock lock(mutex_);
  int64_t said = first_;
  while (!ended_.wait_for(lock, std::chrono::duration<double>(options_.seconds),
                          [this] { return is_ended_; })) {
    const int64_t found = options_.programs();
    if (now() - since_ < options_.seconds || found <= std::max(said, first_)) continue;
    log::info(format_text("step {}: XLA is compiling: {} so far, in {}", step_ + 1,
                          programs_text(found - first_), duration_text(now() - since_)));
    said = found;
  }
}

CompileProgress::Options compile_progress_of(const c10::Device& device) {
  if (!compiles_shapes(device)) return {};
  return {.programs = kept_tpu_programs};
}

}  // namespace finetune
