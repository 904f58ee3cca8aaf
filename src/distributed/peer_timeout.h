// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace finetune {

// A rank's wait for other ranks, in slices short enough for a signal to end it.
class PeerTimeout {
 public:
  using Duration = std::chrono::milliseconds;

  explicit PeerTimeout(Duration limit);
  // Sleeps for a slice of time. Returns false if the limit has passed. At growing intervals a line
  // names the awaited rank ("rank 1 of 2"), which `whom` returns; with an empty text, another rank
  // reports it.
  [[nodiscard]] bool wait(const std::function<std::string()>& whom);
  [[nodiscard]] Duration left() const;
  [[nodiscard]] int64_t seconds() const;  // the limit

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point start_ = Clock::now();
  Clock::time_point end_;
  Clock::duration slice_{std::chrono::milliseconds(1)};
  Clock::duration pause_{std::chrono::seconds(5)};
  Clock::time_point next_line_ = start_ + pause_;
};

// Returns "rank 1", "ranks 1 and 3", "ranks 1, 2, 3, 4 and 59 others". Requires: at least one rank.
[[nodiscard]] std::string names_of_ranks(const std::vector<int64_t>& ranks);

}  // namespace finetune
