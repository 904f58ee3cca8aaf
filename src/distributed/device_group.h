// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "distributed/device_offer.h"
#include "finetune/distributed/world.h"

namespace finetune {

// The connected devices of all ranks: World's members for tensors on them. Throws what c10d throws;
// c10::DistError if another rank is dead or does not arrive. After a failure all later calls fail.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;
  [[nodiscard]] virtual std::unique_ptr<World::BegunSum> begin_sum(const Tensor& values) = 0;
  virtual void broadcast(const Tensor& values, int64_t from) = 0;
  virtual void all_to_all(const Tensor& output, const Tensor& input,
                          const std::vector<int64_t>& output_sizes,
                          const std::vector<int64_t>& input_sizes) = 0;
  virtual void all_gather(const Tensor& whole, const Tensor& part) = 0;
};

struct DeviceGroupOptions {
  int64_t rank = 0;
  int64_t size = 1;
  c10::Device device{c10::kCPU};
  std::chrono::milliseconds limit{};   // time limit of each member above
  std::function<bool()> is_over = {};  // whether a rank is dead, so that waiting is useless
};

// Sets the environment variables of NCCL and c10d. Call it before other threads exist that may read
// them. `interface`: the only one to listen on; empty: loopback.
void set_nccl_environment(const std::string& interface);

[[nodiscard]] DeviceOffer nccl_offer(const c10::Device& device);

// Connects the ranks. A collective; requires offers without objections.
[[nodiscard]] std::unique_ptr<DeviceGroup> join_over_nccl(c10::intrusive_ptr<c10d::Store> store,
                                                          const DeviceGroupOptions& options);

}  // namespace finetune
