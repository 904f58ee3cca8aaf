// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>

namespace finetune {

// In this scope, libtorch and its libraries use one thread for operations of the calling thread.
// Their sums then have the same bits for any number of threads of the process; otherwise matrix
// products and reductions split their sums by the number of threads. Does nothing unless `wanted`.
class OneThread {
 public:
  explicit OneThread(bool wanted);
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// Calls compute(i) for all i of [0, count), each with one thread as above, concurrently on all
// threads of the process. Calls must be independent: the result must not depend on the thread, and
// compute(i) must only change its own data. Returns when all calls have returned; throws the
// exception of the first i that threw. Requires: not called from within itself.
void compute_side_by_side(int64_t count, const std::function<void(int64_t)>& compute);

}  // namespace finetune
