// SPDX-License-Identifier: MIT
#include "finetune/distributed/owned_tensors.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "distributed/thread_world.h"

namespace finetune::testing {
namespace {

using ::testing::ElementsAre;

TEST(BalancedOwners, GivesTheLargestToTheOneThatHasLeast) {
  EXPECT_THAT(balanced_owners({10, 50, 20, 30, 20}, 2), ElementsAre(1, 0, 1, 1, 0));
  EXPECT_THAT(balanced_owners({7, 7}, 4), ElementsAre(0, 1));
  EXPECT_THAT(balanced_owners({7, 9, 1}, 1), ElementsAre(0, 0, 0));
}

TEST(OwnedTensors, BringsEachOwnersValuesToAll) {
  for (const int64_t buffer : {int64_t{12}, int64_t{100}, int64_t{1} << 20}) {
    in_processes(3, [buffer](World& world) {
      // Rank 2 owns nothing.
      const std::vector<int64_t> owners = {0, 1, 1, 0};
      std::vector<Tensor> tensors;
      for (size_t i = 0; i < owners.size(); ++i) {
        const bool is_own = owners[i] == world.rank();
        const double value = is_own ? static_cast<double>(i) + 1.0 : -1.0;
        tensors.push_back(at::full({static_cast<int64_t>(5 * i + 1), 3}, value, at::kFloat));
      }
      tensors[1] = tensors[1].to(at::kBFloat16);
      tensors[3] = tensors[3].to(at::kChar);
      OwnedTensors owned(world, tensors, owners, buffer);
      owned.share();
      for (size_t i = 0; i < owners.size(); ++i) {
        EXPECT_TRUE((tensors[i] == static_cast<double>(i) + 1.0).all().item<bool>()) << i;
      }
    });
  }
}

}  // namespace
}  // namespace finetune::testing
