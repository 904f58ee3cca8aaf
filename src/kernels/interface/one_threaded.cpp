// SPDX-License-Identifier: MIT
#include "finetune/kernels/one_threaded.h"

#include <ATen/Parallel.h>

#include <exception>
#include <vector>

namespace finetune {

OneThread::OneThread(bool wanted) : before_(wanted ? at::get_num_threads() : 0) {
  if (wanted) at::set_num_threads(1);
}

OneThread::~OneThread() {
  if (before_ > 0) at::set_num_threads(before_);
}

// The threads are OpenMP's, like those of all other work, so no core gets two of them.
// at::set_num_threads(1) limits OpenMP's loops inside the parallel region, and also MKL, which
// would otherwise divide products by the number of threads.
void compute_side_by_side(int64_t count, const std::function<void(int64_t)>& compute) {
  std::vector<std::exception_ptr> problems(static_cast<size_t>(count));
  const int threads = at::get_num_threads();
  at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    at::set_num_threads(1);
    for (int64_t i = begin; i < end; ++i) {
      try {
        compute(i);
      } catch (...) {
        problems[static_cast<size_t>(i)] = std::current_exception();
      }
    }
  });
  at::set_num_threads(threads);  // of this thread, and of threads created later
  for (const std::exception_ptr& problem : problems) {
    if (problem) std::rethrow_exception(problem);
  }
}

}  // namespace finetune
