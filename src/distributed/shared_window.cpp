// SPDX-License-Identifier: MIT
#include "distributed/shared_window.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>
#include <string>

#include "finetune/base/error.h"
#include "finetune/distributed/board.h"

namespace finetune {
namespace {

// What a process writes at a time: less than a core's second-level cache.
constexpr int64_t kSlotBytes = int64_t{1} << 20;
constexpr int kSpins = 2000;

void* share(size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(ErrorKind::kIo,
                std::string("no memory to share among the processes: ") + std::strerror(errno));
  }
  return memory;
}

void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

struct SharedWindow::Shared {
  alignas(64) std::atomic<uint32_t> arrived{0};
  alignas(64) std::atomic<uint32_t> complete{0};  // number of waits that all came to
  // Of all_to_all, by half and rank.
  std::array<std::array<std::atomic<int64_t>, Board::kMostProcesses>, 2> longest = {};

  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "a futex is 32 bits");

  // Not std::atomic's wait, which is for the threads of one process.
  void futex(int operation, uint32_t value, const timespec* limit) {
    (void)::syscall(SYS_futex, &complete, operation, value, limit, nullptr, 0);
  }
};

SharedWindow& SharedWindow::make(int64_t processes) { return *new SharedWindow(processes); }

SharedWindow::SharedWindow(int64_t processes)
    : processes_(processes),
      shared_(new (share(sizeof(Shared))) Shared),
      slots_(static_cast<std::byte*>(share(static_cast<size_t>(2 * processes * kSlotBytes)))) {}

std::byte* SharedWindow::slot(int64_t turn, int64_t rank) const {
  return slots_ + (turn % 2 * processes_ + rank) * kSlotBytes;
}

bool SharedWindow::wait_for_all(const IsOver& is_over) const {
  const uint32_t before = shared_->complete.load(std::memory_order_acquire);
  if (shared_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == processes_) {
    shared_->arrived.store(0, std::memory_order_relaxed);
    shared_->complete.fetch_add(1, std::memory_order_release);
    shared_->futex(FUTEX_WAKE, INT_MAX, nullptr);
    return true;
  }
  for (int spin = 0; spin < kSpins; ++spin) {
    if (shared_->complete.load(std::memory_order_acquire) != before) return true;
  }
  const timespec limit{.tv_sec = 0, .tv_nsec = 50'000'000};
  while (shared_->complete.load(std::memory_order_acquire) == before) {
    if (is_over()) return false;
    shared_->futex(FUTEX_WAIT, before, &limit);
  }
  return true;
}

// A half is written again two turns later. All have read it by then: a process comes to the wait
// between those turns only after it has.
bool SharedWindow::all_gather(int64_t rank, std::span<std::byte> whole,
                              std::span<const std::byte> part, const IsOver& is_over) {
  const auto bytes = static_cast<int64_t>(part.size());
  FT_CHECK(static_cast<int64_t>(whole.size()) == processes_ * bytes, "a part of each process");
  for (int64_t first = 0; first < bytes; first += kSlotBytes, ++turn_) {
    const int64_t count = std::min(kSlotBytes, bytes - first);
    copy_bytes(slot(turn_, rank), part.data() + first, count);
    if (!wait_for_all(is_over)) return false;
    for (int64_t other = 0; other < processes_; ++other) {
      const std::byte* from = other == rank ? part.data() + first : slot(turn_, other);
      copy_bytes(whole.data() + other * bytes + first, from, count);
    }
  }
  return true;
}

bool SharedWindow::all_to_all(int64_t rank, std::span<std::byte> output,
                              std::span<const std::byte> input,
                              const std::vector<int64_t>& output_sizes,
                              const std::vector<int64_t>& input_sizes, const IsOver& is_over) {
  const int64_t most = kSlotBytes / processes_ / 64 * 64;  // for each pair
  auto& longest_of = shared_->longest[static_cast<size_t>(turn_ % 2)];
  longest_of[static_cast<size_t>(rank)] = *std::ranges::max_element(input_sizes);
  int64_t longest = 1;
  for (int64_t first = 0; first < longest; first += most, ++turn_) {
    int64_t at = 0;  // in the input
    for (int64_t to = 0; to < processes_; ++to) {
      const int64_t size = input_sizes[static_cast<size_t>(to)];
      copy_bytes(slot(turn_, rank) + to * most, input.data() + at + first,
                 std::clamp<int64_t>(size - first, 0, most));
      at += size;
    }
    if (!wait_for_all(is_over)) return false;
    at = 0;
    for (int64_t from = 0; from < processes_; ++from) {
      const int64_t size = output_sizes[static_cast<size_t>(from)];
      copy_bytes(output.data() + at + first, slot(turn_, from) + rank * most,
                 std::clamp<int64_t>(size - first, 0, most));
      at += size;
      if (first == 0) {
        longest = std::max(longest, longest_of[static_cast<size_t>(from)].load());
      }
    }
  }
  return true;
}

}  // namespace finetune
