// SPDX-License-Identifier: MIT
#include "train/save/save_clock.h"

#include <algorithm>
#include <limits>

namespace finetune {
namespace {

constexpr double kMostLostSeconds = 60;
constexpr double kLargestShare = 0.01;  // fraction of the time that saving may take
constexpr double kGigabyte = 1e9;
// Until the first save is measured: 0.35 s per GB for a copy, 10 s per GB for a slow disk.
constexpr double kCopySeconds = 0.35;
constexpr double kWriteSeconds = 10;
// Weight of the newest measurement: one may be an outlier, and old ones no longer apply.
constexpr double kNewest = 0.5;

}  // namespace

SaveClock::SaveClock(const Options& options, double now)
    : minutes_(options.minutes),
      last_(now),
      cost_(kCopySeconds * static_cast<double>(options.checkpoint_bytes) / kGigabyte),
      write_(kWriteSeconds * static_cast<double>(options.checkpoint_bytes) / kGigabyte) {}

void SaveClock::cost(double seconds, double write_seconds) {
  cost_ = is_measured_ ? kNewest * seconds + (1 - kNewest) * cost_ : seconds;
  write_ = is_measured_ ? kNewest * write_seconds + (1 - kNewest) * write_ : write_seconds;
  is_measured_ = true;
}

bool SaveClock::is_due(double now) const { return now - last_ >= interval_seconds(); }

double SaveClock::interval_seconds() const {
  if (minutes_) return *minutes_ > 0 ? *minutes_ * 60 : std::numeric_limits<double>::infinity();
  // The disk should write at most half of the time.
  return std::max({kMostLostSeconds, cost_ / kLargestShare, 2 * write_});
}

}  // namespace finetune
