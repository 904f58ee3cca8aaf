// SPDX-License-Identifier: MIT
// c10d's NCCL, whose headers (and CUDA's) only this source sees.
#include "distributed/device_group.h"
#include "finetune/distributed/membership.h"

#ifdef FINETUNE_HAS_NCCL

#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/ops/ones.h>
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <utility>

#include "distributed/await_work.h"
#include "finetune/base/log.h"
#include "finetune/distributed/peer_lost.h"

namespace finetune {
namespace {

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

  // By then every process has met the others once more, so that nobody waits for this one.
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

  // After an abort c10d would start again, and wait for ranks that do not.
  [[nodiscard]] c10d::ProcessGroupNCCL& group() {
    if (is_aborted_) C10_THROW_ERROR(DistBackendError, "NCCL was ended before");
    return *group_;
  }

  void wait(c10d::Work& work) {
    try {
      await_work(work, limit_, is_over_);
    } catch (...) {
      abort();
      throw;
    }
  }

  // Aborts what runs on the device: it would wait forever for a dead rank, and so would all later
  // work of this process on the device.
  void abort() {
    if (is_aborted_) return;
    is_aborted_ = true;
    try {
      group_->setTimeout(kTimeToLeave);
      group_->abort();
    } catch (const std::exception& error) {
      log::debug(std::string("NCCL: ") + error.what());
    }
  }

  std::chrono::milliseconds limit_;
  std::function<bool()> is_over_;
  bool is_aborted_ = false;
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> group_;
};

// Similar to how NCCL distinguishes devices.
std::string place_of(const c10::Device& device) {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string machine;
  if (!std::getline(file, machine)) {
    std::array<char, 256> name = {};
    if (::gethostname(name.data(), name.size() - 1) == 0) machine = name.data();
  }
  const cudaDeviceProp& properties = *at::cuda::getDeviceProperties(device.index());
  return format_text("{} {}:{}:{}", machine, properties.pciDomainID, properties.pciBusID,
                     properties.pciDeviceID);
}

}  // namespace

std::string nccl_version() { return c10d::getNcclVersion(); }

std::string reason_against_nccl() { return ""; }

void set_nccl_environment(const std::string& interface) {
  // Without it c10d's watchdog thread would end the process with a stack trace; here, the thread
  // that waits for a sum polls for its errors, and heartbeats find dead ranks.
  ::setenv("TORCH_NCCL_BLOCKING_WAIT", "1", /*overwrite=*/1);
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", /*overwrite=*/1);
  const auto unless_set = [](const char* name, const std::string& value) {
    ::setenv(name, value.c_str(), /*overwrite=*/0);
  };
  // "=": this one, not those whose names begin so.
  unless_set("NCCL_SOCKET_IFNAME", "=" + (interface.empty() ? "lo" : interface));
  unless_set("NCCL_RAS_ENABLE", "0");  // listens for a tool that asks how NCCL is
  // Sums in a switch have other bits from run to run.
  unless_set("NCCL_NVLS_ENABLE", "0");
  // Nobody reads these records without that thread.
  unless_set("TORCH_NCCL_TRACE_BUFFER_SIZE", "0");
  unless_set("TORCH_FR_BUFFER_SIZE", "0");
}

DeviceOffer nccl_offer(const c10::Device& device) {
  if (!device.is_cuda()) {
    return {.reason = "NCCL joins NVIDIA GPUs alone, and this is " + device.str()};
  }
  return {.place = place_of(device)};
}

std::unique_ptr<DeviceGroup> join_over_nccl(c10::intrusive_ptr<c10d::Store> store,
                                            const DeviceGroupOptions& options) {
  auto group = std::make_unique<NcclGroup>(std::move(store), options);
  group->connect(options.device);
  return group;
}

}  // namespace finetune

#else

#include "finetune/base/error.h"
#include "finetune/base/text.h"

namespace finetune {

std::string nccl_version() { return ""; }

std::string reason_against_nccl() {
  return std::string("this build has no NCCL: ") + FINETUNE_NO_NCCL;
}

void set_nccl_environment(const std::string&) {}

DeviceOffer nccl_offer(const c10::Device&) { return {.reason = reason_against_nccl()}; }

std::unique_ptr<DeviceGroup> join_over_nccl(c10::intrusive_ptr<c10d::Store>,
                                            const DeviceGroupOptions&) {
  FT_CHECK(false, "NCCL, which this build has not");
}

}  // namespace finetune

#endif
