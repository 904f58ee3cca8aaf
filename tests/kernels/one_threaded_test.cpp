// SPDX-License-Identifier: MIT
#include "finetune/kernels/one_threaded.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "finetune/tensor/tensor.h"

namespace finetune {
namespace {

class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

TEST(OneThreaded, GivesTheBitsOfOneThreadForAnyNumber) {
  const Tensor x = at::randn({300, 500});
  const Tensor y = at::randn({500, 70});
  constexpr int64_t kTasks = 5;
  std::vector<Tensor> expected;
  for (const int threads : {1, 2, 3}) {
    const Threads guard(threads);
    std::vector<Tensor> results(kTasks);
    std::vector<int> seen(kTasks);
    compute_side_by_side(kTasks, [&](int64_t i) {
      const auto position = static_cast<size_t>(i);
      seen[position] = at::get_num_threads();
      results[position] = at::mm(x * static_cast<double>(i + 1), y).sum();
    });
    EXPECT_EQ(at::get_num_threads(), threads);
    if (expected.empty()) expected = results;
    for (size_t i = 0; i < kTasks; ++i) {
      EXPECT_EQ(seen[i], 1);
      EXPECT_TRUE(results[i].equal(expected[i])) << i << " with " << threads << " threads";
    }
    const OneThread one(true);
    EXPECT_EQ(at::get_num_threads(), 1);
    EXPECT_TRUE(at::mm(x, y).sum().equal(expected[0]));
  }
}

TEST(OneThreaded, LeavesTheNumberOfThreadsWhereItIsNotWanted) {
  const Threads guard(2);
  const OneThread one(false);
  EXPECT_EQ(at::get_num_threads(), 2);
}

TEST(OneThreaded, ThrowsWhenAllHaveReturned) {
  const Threads guard(2);
  std::vector<int> done(4, 0);
  const auto compute = [&](int64_t i) {
    if (i == 1) throw std::runtime_error("no");
    done[static_cast<size_t>(i)] = 1;
  };
  EXPECT_THROW(compute_side_by_side(4, compute), std::runtime_error);
  EXPECT_EQ(done, (std::vector<int>{1, 0, 1, 1}));
  EXPECT_EQ(at::get_num_threads(), 2);
}

}  // namespace
}  // namespace finetune
