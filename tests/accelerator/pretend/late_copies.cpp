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

}  // namespace

LateCopies& LateCopies::instance() {
  static auto* const copies = new LateCopies();
  return *copies;
}

void LateCopies::add(const at::Tensor& host, bool to_host) {
  const auto* const begin = static_cast<const char*>(host.const_data_ptr());
  Copy copy{.host = host, .content = {begin, begin + host.nbytes()}, .to_host = to_host};
  if (to_host) std::memset(host.mutable_data_ptr(), 0xFF, host.nbytes());
  const std::lock_guard lock(mutex_);
  copies_.push_back(std::move(copy));
}

void LateCopies::finish(const Copy& copy) {
  if (copy.to_host) {
    std::memcpy(copy.host.mutable_data_ptr(), copy.content.data(), copy.content.size());
  } else if (std::memcmp(copy.host.const_data_ptr(), copy.content.data(), copy.content.size()) !=
             0) {
    // Aborts instead of throwing, because destructors also call waits.
    std::fputs("pretend accelerator: the host overwrote pinned memory before the device read it\n",
               stderr);
    std::abort();
  }
}

void LateCopies::finish() {
  const std::lock_guard lock(mutex_);
  for (const Copy& copy : copies_) finish(copy);
  copies_.clear();
}

void LateCopies::finish_overlapping(const at::Tensor& host) {
  const std::lock_guard lock(mutex_);
  std::erase_if(copies_, [&](const Copy& copy) {
    if (!overlap(copy.host, host)) return false;
    finish(copy);
    return true;
  });
}

}  // namespace pretend
