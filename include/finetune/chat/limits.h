// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

namespace finetune::chat {

namespace internal {

// The counters of a thread. Without a rendering nothing reaches an end.
struct LimitsState {
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 2;
  int64_t units = 0;
  int64_t next_look = kNever;
  int64_t memory = 0;  // may be negative: values of other threads are released here
  int64_t memory_end = kNever;
  int depth = 0;
  bool is_active = false;
};

}  // namespace internal

// What one rendering may use, since templates and rows are untrusted. The counters belong to the
// thread, not to an argument, so that containers, text and comparisons count without being asked:
// every container of values uses CountedAllocator, every text counts its own bytes, and the loops
// that neither copy nor append call work(). Outside of a Rendering nothing is limited but nesting.
class Limits {
 public:
  static constexpr int64_t kMaxSteps = 10'000'000;
  static constexpr int64_t kMaxMemory = int64_t{256} << 20;  // of all values together
  static constexpr size_t kMaxBytes = size_t{64} << 20;      // of one text
  static constexpr size_t kMaxItems = 1'000'000;             // of one list or dict
  static constexpr int kMaxDepth = 2'000;                    // of nested evaluations
  static constexpr int kMaxNesting = 200;                    // of values within values
  static constexpr size_t kMaxMessage = 500;                 // bytes of an error message
  static constexpr int64_t kUnitsOfStep = 100;

  // Limits the work of this thread while it lives.
  class Rendering {
   public:
    Rendering();
    ~Rendering();
    Rendering(const Rendering&) = delete;
    Rendering& operator=(const Rendering&) = delete;
  };

  // One evaluation of an expression or statement, or one pass of a loop.
  static void step() { work(kUnitsOfStep); }
  // Counts work within a step. A unit is about a nanosecond: comparing an item takes 16, an
  // allocation 128, copying 8 bytes takes 1. Throws Error(kData), or Interrupted if a stop was
  // requested.
  static void work(size_t units) {
    state_.units += static_cast<int64_t>(units);
    if (state_.units >= state_.next_look) look();
  }
  // Work of this thread's current or last rendering.
  [[nodiscard]] static int64_t units() { return state_.units; }
  // Throws Error(kData) before a text of this size is made.
  static void check_text(size_t bytes) {
    if (bytes > kMaxBytes && state_.is_active) fail_text();
  }
  static void check_items(size_t items) {
    if (items > kMaxItems && state_.is_active) fail_items();
  }
  // Memory of values.
  static void allocate(size_t bytes) {
    // The system maps large blocks page by page, which takes longer than to fill them.
    work(kUnitsOfAllocation + bytes / (bytes < (size_t{128} << 10) ? 4 : 1));
    if (static_cast<int64_t>(bytes) > state_.memory_end - state_.memory) fail_memory();
    state_.memory += static_cast<int64_t>(bytes);
  }
  static void release(size_t bytes) noexcept { state_.memory -= static_cast<int64_t>(bytes); }
  // One level of recursion, while it lives.
  class Deeper {
   public:
    Deeper() {
      if (state_.depth >= kMaxDepth) fail_depth();
      ++state_.depth;
    }
    ~Deeper() { --state_.depth; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
  };
  // Throws Error(kData) for a value that holds `nesting` levels of values.
  static int nested(int nesting) {
    if (nesting > kMaxNesting) fail_nesting();
    return nesting;
  }

 private:
  static constexpr size_t kUnitsOfAllocation = 100;

  static void look();
  [[noreturn]] static void fail_text();
  [[noreturn]] static void fail_items();
  [[noreturn]] static void fail_memory();
  [[noreturn]] static void fail_depth();
  [[noreturn]] static void fail_nesting();

  static inline constinit thread_local internal::LimitsState state_ = {};
};

// Counts the memory of what it allocates.
template <class T>
struct CountedAllocator {
  using value_type = T;
  static constexpr size_t kOverhead = 16;  // of the system's allocator

  CountedAllocator() = default;
  template <class Other>
  CountedAllocator(const CountedAllocator<Other>& /*other*/) {}

  [[nodiscard]] T* allocate(size_t count) {
    Limits::allocate(count * sizeof(T) + kOverhead);
    return std::allocator<T>().allocate(count);
  }
  void deallocate(T* items, size_t count) noexcept {
    Limits::release(count * sizeof(T) + kOverhead);
    std::allocator<T>().deallocate(items, count);
  }
  bool operator==(const CountedAllocator&) const = default;
};

template <class T>
using Counted = std::vector<T, CountedAllocator<T>>;

// Memory that an object counts although another allocator owns it.
class CountedMemory {
 public:
  CountedMemory() = default;
  CountedMemory(const CountedMemory& other) { set(other.bytes_); }
  CountedMemory(CountedMemory&& other) noexcept : bytes_(std::exchange(other.bytes_, 0)) {}
  CountedMemory& operator=(const CountedMemory& other) {
    if (this != &other) set(other.bytes_);
    return *this;
  }
  CountedMemory& operator=(CountedMemory&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~CountedMemory() { Limits::release(bytes_); }

  void set(size_t bytes) {
    if (bytes == bytes_) return;
    Limits::release(std::exchange(bytes_, 0));
    Limits::allocate(bytes);
    bytes_ = bytes;
  }

  void add(size_t bytes) {
    Limits::allocate(bytes);
    bytes_ += bytes;
  }

 private:
  size_t bytes_ = 0;
};

}  // namespace finetune::chat
