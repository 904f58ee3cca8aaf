// SPDX-License-Identifier: MIT
#include "finetune/kernels/normal.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "finetune/base/random.h"

namespace finetune {

namespace {

// Calls `next` with the sequence of each row for every value.
template <typename Next>
void fill(const Tensor& values, uint64_t seed, uint64_t stream, const Next& next) {
  const int64_t rows = values.size(0);
  const int64_t columns = values.numel() / std::max<int64_t>(1, rows);
  float* data = values.mutable_data_ptr<float>();
  at::parallel_for(0, rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      random::Sequence numbers(random::make_key(seed, random::Purpose::kInitialization, stream,
                                                static_cast<uint64_t>(r)));
      for (int64_t c = 0; c < columns; ++c) {
        data[r * columns + c] = static_cast<float>(next(numbers));
      }
    }
  });
}

}  // namespace

void fill_normal(const Tensor& values, double deviation, uint64_t seed, uint64_t stream) {
  fill(values, seed, stream,
       [&](random::Sequence& numbers) { return deviation * numbers.normal(); });
}

void fill_uniform(const Tensor& values, double bound, uint64_t seed, uint64_t stream) {
  fill(values, seed, stream,
       [&](random::Sequence& numbers) { return bound * (2.0 * numbers.uniform() - 1.0); });
}

}  // namespace finetune
