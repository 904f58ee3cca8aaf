// SPDX-License-Identifier: MIT
#include "train/setup/connect_devices.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

namespace finetune::testing {
namespace {

// Counts how often devices are connected, which is a collective.
class CountingWorld final : public World {
 public:
  explicit CountingWorld(int64_t size) : size_(size) {}
  [[nodiscard]] int64_t rank() const override { return 1; }
  [[nodiscard]] int64_t size() const override { return size_; }
  void sum(std::span<double>) override {}
  void sum(std::span<int64_t>) override {}
  [[nodiscard]] std::string broadcast(const std::string& text) override { return text; }
  void broadcast(const Tensor&, int64_t) override {}
  void sum(const Tensor&) override {}
  void all_to_all(const Tensor&, const Tensor&, const std::vector<int64_t>&,
                  const std::vector<int64_t>&) override {}
  void all_gather(const Tensor&, const Tensor&) override {}
  [[nodiscard]] std::string connect(const c10::Device&) override {
    ++connects;
    return "none";
  }

  int connects = 0;

 private:
  int64_t size_;
};

int connects(int64_t processes, const std::optional<std::string>& backend) {
  LoadedConfig config;
  config.args.ddp_backend = backend;
  CountingWorld world(processes);
  connect_devices(world, c10::Device(c10::kCPU), config);
  return world.connects;
}

TEST(ConnectDevices, IsAMeetingOfSeveralProcessesUnlessGlooIsAskedFor) {
  EXPECT_EQ(connects(2, std::nullopt), 1);
  EXPECT_EQ(connects(2, "nccl"), 1);
  EXPECT_EQ(connects(2, "mpi"), 1);
  EXPECT_EQ(connects(2, "gloo"), 0);
  EXPECT_EQ(connects(1, std::nullopt), 0);
}

}  // namespace
}  // namespace finetune::testing
