// SPDX-License-Identifier: MIT
#include "finetune/data/long_step.h"

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"

namespace finetune {

LongStep::LongStep(StepName name, int64_t total, ShowStep show, int64_t scale)
    : name_(std::move(name)), total_(total), show_(std::move(show)), scale_(scale) {
  tell();
}

void LongStep::reach(int64_t done) {
  constexpr std::chrono::milliseconds kBetween(100);
  if (interrupt::is_requested()) throw Interrupted(name_.doing);
  const bool ends = done >= total_ && done_ < total_;
  done_ = std::min(done, total_);
  if (!show_) return;
  const auto now = std::chrono::steady_clock::now();
  if (!ends && now - reported_ < kBetween) return;
  reported_ = now;
  tell();
}

void LongStep::tell() const {
  const auto scaled = [&](int64_t value) { return (value + scale_ - 1) / scale_; };
  if (show_) {
    show_(
        {.phase = name_.phase, .unit = name_.unit, .done = scaled(done_), .total = scaled(total_)});
  }
}

}  // namespace finetune
