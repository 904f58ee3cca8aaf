// SPDX-License-Identifier: MIT
// DeviceGroup over c10d's NCCL. Only this source includes its headers and CUDA's, and only it needs
// libtorch_cuda: it is a shared object (libfinetune_nccl.so) that nccl.cpp loads if torch is a CUDA
// build.
#include "distributed/nccl_module.h"

#include <ATen/ops/ones.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <utility>

#include "finetune/distributed/peer_lost.h"

namespace finetune {
namespace {

const NcclHost* host = nullptr;  // the binary that loaded this module

class NcclGroup final : public DeviceGroup {
 public:
  NcclGroup(c10::intrusive_ptr<c10d::Store> store, const DeviceGroupOptions& options)
      : limit_(options.limit), is_over_(options.is_over) {
    auto nccl = c10d::ProcessGroupNCCL::Options::create();
    nccl->timeout = options.limit;
    group_ = c10::make_intrusive<c10d::ProcessGroupNCCL>(
        std::move(store), static_cast<int>(options.rank), static_cast<int>(options.size),
        std::move(nccl));
  }

  // All ranks have synchronised before, so no rank waits for this one.
  ~NcclGroup() override { abort(); }

  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  // The first sum opens the connections.
  void connect(const c10::Device& device) {
    group_->eagerConnectSingleDevice(device);
    begin_sum(at::ones({1}, at::TensorOptions().device(device).dtype(at::kFloat)))->wait();
  }

  [[nodiscard]] std::unique_ptr<World::BegunSum> begin_sum(const Tensor& values) override {
    std::vector<Tensor> tensors = {values};
    return std::make_unique<NcclSum>(*this, group().allreduce(tensors));
  }

  void broadcast(const Tensor& values, int64_t from) override {
    std::vector<Tensor> tensors = {values};
    c10d::BroadcastOptions options;
    options.rootRank = from;
    wait(*group().broadcast(tensors, options));
  }

  void all_to_all(const Tensor& output, const Tensor& input,
                  const std::vector<int64_t>& output_sizes,
                  const std::vector<int64_t>& input_sizes) override {
    Tensor out = output;
    Tensor in = input;
    std::vector<int64_t> out_sizes = output_sizes;
    std::vector<int64_t> in_sizes = input_sizes;
    wait(*group().alltoall_base(out, in, out_sizes, in_sizes));
  }

  void all_gather(const Tensor& whole, const Tensor& part) override {
    Tensor out = whole;
    Tensor in = part;
    wait(*group()._allgather_base(out, in));
  }

 private:
  class NcclSum final : public World::BegunSum {
   public:
    NcclSum(NcclGroup& group, c10::intrusive_ptr<c10d::Work> work)
        : group_(group), work_(std::move(work)) {}
    void wait() override { group_.wait(*work_); }

   private:
    NcclGroup& group_;
    c10::intrusive_ptr<c10d::Work> work_;
  };

  // Throws after an abort: c10d would start again, and wait for ranks that do not.
  [[nodiscard]] c10d::ProcessGroupNCCL& group() {
    if (is_aborted_) C10_THROW_ERROR(DistBackendError, "NCCL was ended before");
    return *group_;
  }

  void wait(c10d::Work& work) {
    try {
      host->await_work(work, limit_, is_over_);
    } catch (...) {
      abort();
      throw;
    }
  }

  // Aborts the running operation: it would wait forever for a dead rank, and so would all later
  // work of this process on the device.
  void abort() {
    if (is_aborted_) return;
    is_aborted_ = true;
    try {
      group_->setTimeout(kTimeToLeave);
      group_->abort();
    } catch (const std::exception& error) {
      host->debug(std::string("NCCL: ") + error.what());
    }
  }

  std::chrono::milliseconds limit_;
  std::function<bool()> is_over_;
  bool is_aborted_ = false;
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> group_;
};

// Returns the PCI address, by which NCCL distinguishes devices too. Uses the CUDA runtime that
// torch has loaded, because cudaDeviceProp has another layout in each major version.
std::string address_of(const c10::Device& device) {
  std::array<char, 64> address = {};
  const auto read = reinterpret_cast<decltype(&::cudaDeviceGetPCIBusId)>(
      ::dlsym(RTLD_DEFAULT, "cudaDeviceGetPCIBusId"));
  if (read == nullptr ||
      read(address.data(), static_cast<int>(address.size()), device.index()) != cudaSuccess) {
    return device.str();
  }
  return address.data();
}

std::string position_of(const c10::Device& device) {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string machine;
  if (!std::getline(file, machine)) {
    std::array<char, 256> name = {};
    if (::gethostname(name.data(), name.size() - 1) == 0) machine = name.data();
  }
  return machine + " " + address_of(device);
}

std::unique_ptr<DeviceGroup> join(c10::intrusive_ptr<c10d::Store> store,
                                  const DeviceGroupOptions& options) {
  auto group = std::make_unique<NcclGroup>(std::move(store), options);
  group->connect(options.device);
  return group;
}

}  // namespace
}  // namespace finetune

extern "C" __attribute__((visibility("default"))) const finetune::NcclModule* finetune_nccl_module(
    const finetune::NcclHost* host) {
  static const finetune::NcclModule module = {
      .compiled_for = std::to_string(NCCL_MAJOR) + "." + std::to_string(NCCL_MINOR),
      .version = &c10d::getNcclVersion,
      .position_of = &finetune::position_of,
      .join = &finetune::join,
  };
  finetune::host = host;
  return &module;
}
