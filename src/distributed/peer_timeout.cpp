// SPDX-License-Identifier: MIT
#include "distributed/peer_timeout.h"

#include <algorithm>
#include <thread>

#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

constexpr std::chrono::milliseconds kLongestSlice{100};
constexpr std::chrono::minutes kLongestRetryPause{10};
constexpr size_t kMostNames = 4;

}  // namespace

PeerTimeout::PeerTimeout(Duration limit) : end_(start_ + limit) {}

bool PeerTimeout::wait(const std::function<std::string()>& whom) {
  const Clock::time_point now = Clock::now();
  if (now >= end_) return false;
  if (now >= next_line_) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - start_).count();
    const std::string names = whom();
    if (!names.empty()) {
      log::info(format_text("waiting for {}, for {} s now", names, seconds));
    }
    pause_ = std::min<Clock::duration>(2 * pause_, kLongestRetryPause);
    next_line_ = now + pause_;
  }
  std::this_thread::sleep_for(std::min(slice_, end_ - now));
  slice_ = std::min<Clock::duration>(slice_ + slice_ / 2, kLongestSlice);
  return true;
}

PeerTimeout::Duration PeerTimeout::left() const {
  const Duration left = std::chrono::duration_cast<Duration>(end_ - Clock::now());
  return std::max(left, Duration::zero());
}

int64_t PeerTimeout::seconds() const {
  return std::chrono::duration_cast<std::chrono::seconds>(end_ - start_).count();
}

std::string names_of_ranks(const std::vector<int64_t>& ranks) {
  FT_CHECK(!ranks.empty(), "no ranks to name");
  if (ranks.size() == 1) return format_text("rank {}", ranks[0]);
  // Print the last rank itself instead of "and 1 other".
  const size_t named = ranks.size() <= kMostNames + 1 ? ranks.size() - 1 : kMostNames;
  std::string text = format_text("ranks {}", ranks[0]);
  for (size_t i = 1; i < named; ++i) text += format_text(", {}", ranks[i]);
  if (named + 1 == ranks.size()) return format_text("{} and {}", text, ranks.back());
  return format_text("{} and {} others", text, ranks.size() - named);
}

}  // namespace finetune
