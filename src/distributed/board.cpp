// SPDX-License-Identifier: MIT
#include "finetune/distributed/board.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <new>
#include <thread>

#include "distributed/activity.h"
#include "distributed/shared_window.h"
#include "finetune/base/error.h"
#include "finetune/distributed/peer_lost.h"

namespace finetune {
namespace {

constexpr auto kBeat = std::chrono::milliseconds(200);

}  // namespace

bool Board::may_say(std::string_view text) {
  const uint64_t hash = std::hash<std::string_view>()(text) | 1U;
  for (std::atomic<uint64_t>& slot : said) {
    uint64_t none = 0;
    if (slot.compare_exchange_strong(none, hash)) return true;
    if (none == hash) return false;
  }
  return true;
}

bool Board::tells_who_is_gone(int64_t rank) {
  const auto end = std::chrono::steady_clock::now() + kTimeToLeave / 2;
  while (lost_rank < 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  int64_t none = -1;
  return !lost_rank.compare_exchange_strong(none, rank);
}

Board& make_board(int64_t processes) {
  void* memory =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(ErrorKind::kIo,
                std::string("no memory to share among the processes: ") + std::strerror(errno));
  }
  Board& board = *new (memory) Board;
  board.window = &SharedWindow::make(processes);
  return board;
}

struct Heartbeat::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_over = false;
  std::thread thread;
};

Heartbeat::Heartbeat(Board& board, int64_t rank, std::chrono::milliseconds idle_timeout)
    : state_(std::make_unique<State>()) {
  state_->thread = std::thread([state = state_.get(), &board, rank, idle_timeout] {
    using Clock = std::chrono::steady_clock;
    Clock::time_point lost_at = Clock::time_point::max();
    IdleWatch watch(idle_timeout);
    std::unique_lock lock(state->mutex);
    while (!state->changed.wait_for(lock, kBeat, [&] { return state->is_over; })) {
      if (!watch.is_idle(Activity::of_this_process(), Clock::now())) {
        ++board.beats[static_cast<size_t>(rank)];
      }
      if (board.lost_rank < 0) continue;
      if (lost_at == Clock::time_point::max()) lost_at = Clock::now();
      if (Clock::now() - lost_at > kTimeToLeave) ::_exit(kExitStoppedEarly);
    }
  });
}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_over = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

}  // namespace finetune
