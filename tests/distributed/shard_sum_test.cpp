// SPDX-License-Identifier: MIT
#include "finetune/distributed/shard_sum.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "distributed/thread_world.h"

namespace finetune::testing {
namespace {

using ::testing::ElementsAre;

// Returns numbers of very different magnitudes, so that every order of addition gives different
// bits.
std::vector<Tensor> summed_gradients_of(int64_t shard) {
  std::vector<Tensor> list;
  for (const int64_t size : {7, 1, 20}) {
    const Tensor x = at::arange(size, at::kFloat) + static_cast<double>(3 * shard + 1);
    list.push_back((x * 1.37).sin() * (x * 0.71).exp().fmod(1e4));
  }
  return list;
}

std::vector<ShardRange> equal_shares(int64_t shards, int64_t processes, int64_t each) {
  std::vector<ShardRange> shares;
  for (int64_t rank = 0; rank < processes; ++rank) {
    const int64_t first = std::min(shards, rank * each);
    shares.push_back({.first = first, .count = std::min(each, shards - first)});
  }
  return shares;
}

// Returns the sum on each rank, by rank.
std::vector<std::vector<float>> summed(int64_t shards, int64_t processes, int64_t each) {
  std::vector<std::vector<float>> results(static_cast<size_t>(processes));
  in_processes(processes, [&](World& world) {
    const std::vector<ShardRange> shares = equal_shares(shards, processes, each);
    ShardSum sum(world, shards, shares);
    const ShardRange& mine = shares[static_cast<size_t>(world.rank())];
    for (int64_t i = 0; i < mine.count; ++i) sum.add(summed_gradients_of(mine.first + i));
    std::vector<Tensor> into;
    for (const Tensor& gradient : summed_gradients_of(0)) into.push_back(at::empty_like(gradient));
    sum.finish(into, /*bucket_bytes=*/40);
    std::vector<float>& result = results[static_cast<size_t>(world.rank())];
    for (const Tensor& tensor : into) {
      const float* values = tensor.const_data_ptr<float>();
      result.insert(result.end(), values, values + tensor.numel());
    }
  });
  return results;
}

TEST(ShardSum, HasTheSameBitsForAnyNumberOfProcesses) {
  for (const int64_t shards : {1, 2, 5, 6, 8, 12, 13}) {
    const std::vector<float> alone = summed(shards, 1, shards).front();
    for (const int64_t processes : {2, 3, 4}) {
      const int64_t each = (shards + processes - 1) / processes;
      for (const std::vector<float>& result : summed(shards, processes, each)) {
        EXPECT_EQ(result, alone) << shards << " shards in " << processes << " processes";
      }
    }
  }
}

TEST(ShardSum, AddsInAnOrderThatIsNotThatOfTheShards) {
  std::vector<Tensor> in_order = summed_gradients_of(0);
  for (int64_t shard = 1; shard < 8; ++shard) in_order[2].add_(summed_gradients_of(shard)[2]);
  const std::vector<float> sum = summed(8, 1, 8).front();
  EXPECT_NE(sum.back(), in_order[2][-1].item<float>()) << "these numbers show no order";
  EXPECT_NEAR(sum.back(), in_order[2][-1].item<float>(), 1e-2);
}

TEST(ShardSum, ServesProcessesThatHaveNoShard) {
  EXPECT_EQ(summed(2, 4, 2)[3], summed(2, 1, 2)[0]);
}

TEST(ShardSum, CutsARunIntoCompleteSubtrees) {
  EXPECT_THAT(ShardSum::subtrees({.first = 0, .count = 8}), ElementsAre(ShardRange{0, 8}));
  EXPECT_THAT(ShardSum::subtrees({.first = 3, .count = 5}),
              ElementsAre(ShardRange{3, 1}, ShardRange{4, 4}));
  EXPECT_THAT(ShardSum::subtrees({.first = 4, .count = 3}),
              ElementsAre(ShardRange{4, 2}, ShardRange{6, 1}));
  EXPECT_TRUE(ShardSum::subtrees({.first = 4, .count = 0}).empty());
}

}  // namespace
}  // namespace finetune::testing
