// SPDX-License-Identifier: MIT
#include "finetune/params/gradients.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <vector>

#include "finetune/kernels/one_threaded.h"
#include "finetune/params/store.h"

namespace finetune {
namespace {

TEST(SeparateGradients, KeepWhatSeveralThreadsAddApart) {
  at::set_num_threads(2);
  ParameterStore store({{"weight", at::zeros({6, 4})}, {"unused", at::zeros({3})}},
                       WeightFormat::kFloat32, GradientFormat::kFloat32);
  const Weight weight = store.weight("weight");
  Gradients& own = store.gradients();
  int completed = 0;
  own.on_complete([&](Parameter&) { ++completed; });
  std::vector<std::vector<Tensor>> gradients(2);
  compute_side_by_side(2, [&](int64_t i) {
    const SeparateGradients separate(own, gradients[static_cast<size_t>(i)]);
    for (int64_t again = 0; again <= i; ++again) own.add(weight, at::ones({6, 4}));
    own.complete({weight});
  });
  EXPECT_TRUE(gradients[0][0].equal(at::ones({6, 4})));
  EXPECT_TRUE(gradients[1][0].equal(at::ones({6, 4}) * 2));
  EXPECT_FALSE(gradients[0][1].defined());
  EXPECT_FALSE(store.parameters()[0].gradient.defined());
  EXPECT_EQ(completed, 0);
  own.add(weight, at::ones({6, 4}));
  EXPECT_TRUE(store.parameters()[0].gradient.equal(at::ones({6, 4})));
}

}  // namespace
}  // namespace finetune
