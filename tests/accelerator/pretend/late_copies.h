// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace pretend {

// The default stream, which owns all device memory, and those of the pool.
constexpr size_t kStreams = 4;
// Returns the current stream of this thread.
size_t current_stream();

// What is ordered before a moment: of each stream, the work with a lower number.
using Clock = std::array<uint64_t, kStreams>;

// Copies between pinned memory and the device that the host has not waited for, and the order that
// events give to the work of streams. A copy to the host arrives when the host waits for it; until
// then its target contains NaN. A copy to the device reads its source at any moment before the host
// waits, so overwriting the source earlier is an error. So is work on one stream that uses memory
// of unordered work on another one. Thread-safe.
class LateCopies {
 public:
  static LateCopies& instance();

  // Registers a copy on this thread's stream that was already carried out. If it goes to the host,
  // its effect on `host` is undone until the host waits.
  void add(const at::Tensor& host, const at::Tensor& device, bool to_host);
  // Completes all copies, or those before a moment, because the host waits.
  void finish();
  void finish(const Clock& before);
  // Completes copies that overlap this memory, because this thread's stream, on which they are
  // ordered, is about to read or write it.
  void finish_overlapping(const at::Tensor& host);

  // Returns what is ordered before later work of this stream, for an event.
  Clock clock_of(size_t stream);
  // Makes the later work of this stream wait for an event.
  void block(size_t stream, const Clock& event);

  // Throws if the order of streams does not allow this thread's stream to read or write a block of
  // device memory now.
  void use(const void* block, bool written);
  // Aborts if work of other streams may still use a block that the default stream takes back.
  void give_back(const void* block);

 private:
  struct Copy {
    at::Tensor host;
    const void* device = nullptr;  // block
    // of the target after the copy; for a source, what it must still contain
    std::vector<char> content;
    bool to_host = false;
    size_t stream = 0;
    uint64_t number = 0;
  };
  struct Write {
    size_t stream = 0;
    uint64_t number = 0;
  };
  static void finish(const Copy& copy);
  [[nodiscard]] Clock locked_clock(size_t stream) const;

  std::mutex mutex_;
  std::vector<Copy> copies_;
  std::map<const void*, Write> writes_;  // the last of each block, by operators
  uint64_t next_ = 1;
  std::array<Clock, kStreams> seen_ = {};
};

}  // namespace pretend
