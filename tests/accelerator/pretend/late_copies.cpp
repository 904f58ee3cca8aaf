// SPDX-License-Identifier: MIT
#include "late_copies.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace pretend {
namespace {

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  const auto* const first_a = static_cast<const char*>(a.const_data_ptr());
  const auto* const first_b = static_cast<const char*>(b.const_data_ptr());
  return first_a < first_b + b.nbytes() && first_b < first_a + a.nbytes();
}

// Aborts instead of throwing, because destructors also wait and free memory.
[[noreturn]] void abort_with(const char* message) {
  std::fprintf(stderr, "pretend accelerator: %s\n", message);
  std::abort();
}

}  // namespace

LateCopies& LateCopies::instance() {
  static auto* const copies = new LateCopies();
  return *copies;
}

void LateCopies::add(const at::Tensor& host, const at::Tensor& device, bool to_host) {
  const auto* const begin = static_cast<const char*>(host.const_data_ptr());
  Copy copy{.host = host,
            .device = device.storage().data(),
            .content = {begin, begin + host.nbytes()},
            .to_host = to_host,
            .stream = current_stream()};
  if (to_host) std::memset(host.mutable_data_ptr(), 0xFF, host.nbytes());
  const std::lock_guard lock(mutex_);
  copy.number = next_++;
  copies_.push_back(std::move(copy));
}

void LateCopies::finish(const Copy& copy) {
  if (copy.to_host) {
    std::memcpy(copy.host.mutable_data_ptr(), copy.content.data(), copy.content.size());
  } else if (std::memcmp(copy.host.const_data_ptr(), copy.content.data(), copy.content.size()) !=
             0) {
    abort_with("the host overwrote pinned memory before the device read it");
  }
}

void LateCopies::finish() {
  const std::lock_guard lock(mutex_);
  for (const Copy& copy : copies_) finish(copy);
  copies_.clear();
}

void LateCopies::finish(const Clock& before) {
  const std::lock_guard lock(mutex_);
  std::erase_if(copies_, [&](const Copy& copy) {
    if (copy.number >= before[copy.stream]) return false;
    finish(copy);
    return true;
  });
}

void LateCopies::finish_overlapping(const at::Tensor& host) {
  const std::lock_guard lock(mutex_);
  const Clock before = locked_clock(current_stream());
  std::erase_if(copies_, [&](const Copy& copy) {
    if (copy.number >= before[copy.stream] || !overlap(copy.host, host)) return false;
    finish(copy);
    return true;
  });
}

Clock LateCopies::locked_clock(size_t stream) const {
  Clock clock = seen_[stream];
  clock[stream] = next_;
  return clock;
}

Clock LateCopies::clock_of(size_t stream) {
  const std::lock_guard lock(mutex_);
  return locked_clock(stream);
}

void LateCopies::block(size_t stream, const Clock& event) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < kStreams; ++i) seen_[stream][i] = std::max(seen_[stream][i], event[i]);
}

void LateCopies::use(const void* block, bool written) {
  if (block == nullptr) return;
  const size_t stream = current_stream();
  const std::lock_guard lock(mutex_);
  const Clock before = locked_clock(stream);
  for (const Copy& copy : copies_) {
    if (copy.device != block || copy.number < before[copy.stream]) continue;
    TORCH_CHECK(copy.to_host && !written, "pretend accelerator: stream ", stream, " ",
                written ? "writes" : "reads", " memory of a copy on stream ", copy.stream,
                " without waiting for it");
  }
  const auto last = writes_.find(block);
  TORCH_CHECK(last == writes_.end() || last->second.number < before[last->second.stream],
              "pretend accelerator: stream ", stream, " uses memory that stream ",
              last == writes_.end() ? 0 : last->second.stream, " writes, without waiting for it");
  if (written) writes_[block] = {stream, next_++};
}

void LateCopies::give_back(const void* block) {
  const std::lock_guard lock(mutex_);
  const Clock before = locked_clock(0);
  const bool is_used = std::ranges::any_of(copies_, [&](const Copy& copy) {
    return copy.device == block && copy.number >= before[copy.stream];
  });
  if (is_used) abort_with("device memory was freed before a copy on another stream was ordered");
  writes_.erase(block);
}

}  // namespace pretend
