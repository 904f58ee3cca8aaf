// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>

namespace finetune {

// In this scope, on this thread, libtorch and its libraries compute with one thread. Their sums
// then have the same bits whatever number of threads the process has: products of matrices, and
// reductions, divide their work, and so the order of their sums, by the number of threads. Does
// nothing where it is not `wanted`.
class OneThread {
 public:
  explicit OneThread(bool wanted);
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// Calls compute(i) for all of [0, count), each with one thread as above, as many at the same time
// as the process has threads. Results must not depend on which thread computes them: what
// compute(i) changes is its own. Returns when all have returned; throws what the first of them
// threw. Requires: not called from within itself.
void compute_side_by_side(int64_t count, const std::function<void(int64_t)>& compute);

}  // namespace finetune
