// SPDX-License-Identifier: MIT
#include "finetune/kernels/normal.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

namespace finetune {
namespace {

Tensor filled(uint64_t seed, uint64_t stream) {
  Tensor values = at::empty({500, 40});
  fill_normal(values, 0.02, seed, stream);
  return values;
}

TEST(FillNormal, HasTheDeviationThatIsAskedFor) {
  const Tensor values = filled(1, 2);
  EXPECT_NEAR(values.mean().item<double>(), 0.0, 5e-4);
  EXPECT_NEAR(values.std().item<double>(), 0.02, 4e-4);
}

TEST(FillNormal, DependsOnSeedAndStreamAlone) {
  const int threads = at::get_num_threads();
  const Tensor several = filled(1, 2);
  at::set_num_threads(1);
  EXPECT_TRUE(filled(1, 2).equal(several));
  at::set_num_threads(threads);
  EXPECT_FALSE(filled(2, 2).equal(several));
  EXPECT_FALSE(filled(1, 3).equal(several));
}

}  // namespace
}  // namespace finetune
