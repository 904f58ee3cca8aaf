// SPDX-License-Identifier: MIT
#include "train/save_clock.h"

#include <algorithm>
#include <limits>

namespace finetune {
namespace {

constexpr double kMostLostSeconds = 60;
constexpr double kLargestShare = 0.01;  // of the time, spent on saving
constexpr double kGigabyte = 1e9;
// Before the first save: copying takes a third of a second for each GB, a slow disk ten.
constexpr double kCopySeconds = 0.35;
constexpr double kWriteSeconds = 10;
// One measurement may be an outlier, many may be of another time of the day.
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
  // A disk that is written to half of the time is busy enough.
  return std::max({kMostLostSeconds, cost_ / kLargestShare, 2 * write_});
}

}  // namespace finetune
