// SPDX-License-Identifier: MIT
// Devices connected by NCCL: a world of one process with one GPU, of two with two GPUs. Built if
// the binary has NCCL; skipped without a GPU.
#include <ATen/DeviceAccelerator.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "distributed/gloo_members.h"
#include "finetune/distributed/bucket_sum.h"
#include "finetune/distributed/owned_tensors.h"
#include "finetune/distributed/shard_sum.h"

namespace finetune::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

int64_t gpus() {
  const auto kind = at::getAccelerator();
  return kind && *kind == c10::kCUDA ? at::accelerator::deviceCount() : 0;
}

c10::Device device_of(const World& world) {
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(world.rank()));
}

// Numbers of such different magnitudes that every order of addition gives other bits.
std::vector<Tensor> gradients_of(int64_t shard, const c10::Device& device) {
  std::vector<Tensor> list;
  for (const int64_t size : {70, 3, 400, 1, 129, 33}) {
    const Tensor x = at::arange(size, at::kFloat) + static_cast<double>(3 * shard + 1);
    list.push_back(((x * 1.37).sin() * (x * 0.071).exp().fmod(1e4)).to(device));
  }
  return list;
}

class Nccl : public GlooMembers {
 protected:
  void SetUp() override {
    GlooMembers::SetUp();
    if (gpus() == 0) GTEST_SKIP() << "no GPU";
  }

  // Runs one process per GPU, at most two, each connected to its own GPU.
  void on_devices(const std::function<void(World&)>& work) {
    const auto ends = run(std::min<int64_t>(2, gpus()), [&](World& world) {
      ASSERT_EQ(world.connect(device_of(world)), "");
      EXPECT_TRUE(world.reaches(device_of(world)));
      work(world);
      (void)world.any(false);
    });
    EXPECT_THAT(ends, Each(IsEmpty()));
  }
};

TEST_F(Nccl, SumsGathersAndBroadcasts) {
  on_devices([](World& world) {
    const auto floats = at::TensorOptions().device(device_of(world)).dtype(at::kFloat);
    const auto rank = static_cast<double>(world.rank());
    const auto size = static_cast<double>(world.size());
    const Tensor values = at::full({1000}, rank + 1.0, floats);
    world.sum(values);
    EXPECT_TRUE((values == size * (size + 1.0) / 2.0).all().item<bool>());
    world.broadcast(values.fill_(rank), world.size() - 1);
    EXPECT_TRUE((values == size - 1.0).all().item<bool>());
    const Tensor whole = at::empty({world.size()}, floats);
    world.all_gather(whole, at::full({1}, rank, floats));
    EXPECT_EQ(whole[world.size() - 1].item<double>(), size - 1.0);
    const std::vector<int64_t> ones(static_cast<size_t>(world.size()), 1);
    const Tensor output = at::empty({world.size()}, floats);
    world.all_to_all(output, at::full({world.size()}, rank, floats), ones, ones);
    EXPECT_TRUE(output.equal(whole));
  });
}

TEST_F(Nccl, SumsBucketsAsGlooDoes) {
  for (const SentFormat sent :
       {SentFormat::kFloat32, SentFormat::kFloat16, SentFormat::kBFloat16}) {
    on_devices([sent](World& world) {
      const c10::Device device = device_of(world);
      BucketSum::Options options{.bucket_bytes = 600, .sent = sent};
      const std::vector<Tensor> expected = gradients_of(world.rank(), c10::Device(c10::kCPU));
      options.owns_memory = false;
      BucketSum on_host(world, expected, options);
      on_host.begin();
      on_host.finish(expected);
      options.owns_memory = true;
      options.has_thread = false;
      BucketSum on_device(world, gradients_of(0, device), options);
      const std::vector<Tensor> gradients = on_device.memory();
      for (int update = 0; update < 3; ++update) {
        const std::vector<Tensor> own = gradients_of(world.rank(), device);
        on_device.begin();
        for (size_t i = own.size(); i-- > 0;) {
          gradients[i].copy_(own[i]);
          on_device.ready(i, gradients[i]);
        }
        on_device.finish(gradients);
        // With two numbers there is only one order of addition.
        for (size_t i = 0; i < own.size(); ++i) EXPECT_TRUE(gradients[i].cpu().equal(expected[i]));
      }
    });
  }
}

TEST_F(Nccl, KeepsTheBitsOfLogicalShards) {
  on_devices([](World& world) {
    const auto summed = [&](const c10::Device& device) {
      const int64_t shards = 3 * world.size() - 1;
      std::vector<ShardRange> shares;
      for (int64_t rank = 0; rank < world.size(); ++rank) {
        shares.push_back({.first = 3 * rank, .count = std::min<int64_t>(3, shards - 3 * rank)});
      }
      ShardSum sum(world, shards, shares);
      const ShardRange& mine = shares[static_cast<size_t>(world.rank())];
      for (int64_t i = 0; i < mine.count; ++i) sum.add(gradients_of(mine.first + i, device));
      const std::vector<Tensor> into = gradients_of(0, device);
      sum.finish(into, /*bucket_bytes=*/900);
      return into;
    };
    const std::vector<Tensor> on_device = summed(device_of(world));
    const std::vector<Tensor> on_host = summed(c10::Device(c10::kCPU));
    for (size_t i = 0; i < on_host.size(); ++i) EXPECT_TRUE(on_device[i].cpu().equal(on_host[i]));
  });
}

TEST_F(Nccl, SharesOwnedTensors) {
  on_devices([](World& world) {
    const auto bytes = at::TensorOptions().device(device_of(world)).dtype(at::kBFloat16);
    const int64_t last = world.size() - 1;
    std::vector<Tensor> tensors;
    for (const int64_t owner : {int64_t{0}, last, last}) {
      const bool is_own = owner == world.rank();
      tensors.push_back(at::full({17, 3}, is_own ? static_cast<double>(owner) : -1.0, bytes));
    }
    OwnedTensors owned(world, tensors, {0, last, last}, /*buffer_bytes=*/64);
    owned.share();
    EXPECT_TRUE((tensors[0] == 0.0).all().item<bool>());
    EXPECT_TRUE((tensors[2] == static_cast<double>(last)).all().item<bool>());
  });
}

TEST_F(Nccl, IsNotAskedWhereTwoShareAGpu) {
  const auto ends = run(2, [](World& world) {
    const c10::Device device(c10::kCUDA, 0);
    EXPECT_EQ(world.connect(device), "ranks 0 and 1 share a GPU, which NCCL refuses");
    EXPECT_FALSE(world.reaches(device));
  });
  EXPECT_THAT(ends, Each(IsEmpty()));
}

TEST_F(Nccl, GivesUpOnOneThatDoesNotCome) {
  if (gpus() < 2) GTEST_SKIP() << "one GPU";
  const auto ends = run(2, [](World& world) {
    ASSERT_EQ(world.connect(device_of(world)), "");
    if (world.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::seconds(4));
      return;
    }
    world.sum(at::full({10}, 1.0, at::TensorOptions().device(device_of(world))));
  });
  EXPECT_THAT(ends[0], HasSubstr("NCCL waited 2 s for another process"));
}

}  // namespace
}  // namespace finetune::testing
