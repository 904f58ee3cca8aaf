// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>

namespace finetune {

// Memory shared by the ranks of one machine and their launcher: heartbeats, the dead rank,
// messages. Lock-free, so that it works after any process was killed.
class SharedWindow;

struct Board {
  static constexpr size_t kMostProcesses = 512;

  std::array<std::atomic<int64_t>, kMostProcesses> beats = {};  // heartbeat counters
  std::atomic<int64_t> lost_rank{-1};               // the first rank that exited before the end
  std::array<std::atomic<uint64_t>, 64> said = {};  // hashes of messages that were printed
  SharedWindow* window = nullptr;                   // for large tensors

  // Returns true for the first call with this text in any process, so that one rank prints it.
  [[nodiscard]] bool may_say(std::string_view text);

  // For a rank that must exit, possibly because another one is dead. Returns true if the board
  // names a dead rank within a second. Otherwise records this rank as the dead one, so that all
  // ranks exit, and returns false.
  [[nodiscard]] bool tells_who_is_gone(int64_t rank);
};

// Makes a board that exists as long as this process and all processes forked from it. Throws
// Error(kIo).
// `processes`: that will share it.
[[nodiscard]] Board& make_board(int64_t processes);

// Writes a rank's heartbeats until it has been idle for `idle_timeout`. If another rank is dead and
// the main thread does not exit within kTimeToLeave, because it waits for that rank or computes,
// ends the process with exit code 75.
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
