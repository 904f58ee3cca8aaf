// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>

namespace finetune {

// Memory that the processes of one machine share with their launcher: heartbeats, the lost rank,
// messages. Lock-free, so that it works after any of them was killed.
struct Board {
  static constexpr size_t kMostProcesses = 512;

  std::array<std::atomic<int64_t>, kMostProcesses> beats = {};  // grow as long as a process runs
  std::atomic<int64_t> lost_rank{-1};               // the first rank that exited before the end
  std::array<std::atomic<uint64_t>, 64> said = {};  // hashes of messages

  // True the first time that any process asks for this text.
  [[nodiscard]] bool may_say(std::string_view text);

  // For a rank that must exit, perhaps because another one is dead. True: within a second the board
  // names the dead rank. False: the board now names this rank, so that all exit.
  [[nodiscard]] bool tells_who_is_gone(int64_t rank);
};

// Lives as long as the process and every process forked from it. Throws Error(kIo).
[[nodiscard]] Board& make_board();

// Writes heartbeats for a process until it was idle for `idle_timeout`, and ends it with exit
// code 75 where another one is gone and its main thread does not leave by itself in time: one that
// waits for a process that is gone, or computes for long.
class Heartbeat {
 public:
  Heartbeat(Board& board, int64_t rank, std::chrono::milliseconds idle_timeout);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace finetune
