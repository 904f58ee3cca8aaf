// SPDX-License-Identifier: MIT
#include "distributed/device_offer.h"

#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "distributed/gloo_members.h"
#include "support/golden.h"

namespace finetune::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(DeviceOffer, IsReadAsItWasSaid) {
  for (const DeviceOffer& offer :
       {DeviceOffer{.reason = "no GPU"}, DeviceOffer{.position = "machine 0:3:0"}, DeviceOffer{}}) {
    const DeviceOffer read = DeviceOffer::of_text(offer.text());
    EXPECT_EQ(read.reason, offer.reason);
    EXPECT_EQ(read.position, offer.position);
  }
  EXPECT_EQ(DeviceOffer::of_text("").position, "");
}

TEST(DeviceOffer, JoinsDevicesThatAreTheirProcessesOwn) {
  EXPECT_EQ(reason_against({{.position = "a 1"}, {.position = "a 2"}, {.position = "b 1"}}), "");
}

TEST(DeviceOffer, RefusesAGpuOfTwoProcesses) {
  EXPECT_GOLDEN(reason_against({{.position = "a 1"}, {.position = "a 2"}, {.position = "a 1"}}));
}

TEST(DeviceOffer, NamesTheProcessThatCannot) {
  EXPECT_EQ(reason_against({{.position = "a 1"}, {.reason = "no NCCL"}}), "rank 1: no NCCL");
  EXPECT_EQ(reason_against({{.reason = "no NCCL"}, {.reason = "no NCCL"}}), "no NCCL");
}

class ConnectedDevices : public GlooMembers {};

TEST_F(ConnectedDevices, StayInHostMemoryWhereNobodyHasAGpu) {
  std::mutex mutex;
  std::set<std::string> reasons;
  const auto ends = run(2, [&](World& world) {
    const std::string reason = world.connect(c10::Device(c10::kCPU));
    EXPECT_TRUE(world.reaches(c10::Device(c10::kCPU)));
    EXPECT_FALSE(world.reaches(c10::Device(c10::kCUDA, 0)));
    EXPECT_TRUE(world.any(world.rank() == 1));
    const std::lock_guard lock(mutex);
    reasons.insert(reason);
  });
  EXPECT_THAT(ends, Each(IsEmpty()));
  ASSERT_EQ(reasons.size(), 1U);
  EXPECT_THAT(*reasons.begin(), HasSubstr("NCCL"));
}

}  // namespace
}  // namespace finetune::testing
