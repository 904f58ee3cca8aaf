// SPDX-License-Identifier: MIT
// World over c10d's Gloo. Only this source includes its headers: torch's package has the library
// without them.
#include "finetune/base/error.h"
#include "finetune/distributed/membership.h"
#include "finetune/distributed/peer_lost.h"
#include "finetune/distributed/world.h"

#ifdef FINETUNE_HAS_GLOO

#include <ATen/ops/from_blob.h>
#include <c10/util/Logging.h>
#include <unistd.h>

#include <cstdlib>
#include <system_error>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>
#include <vector>

#include "distributed/activity.h"
#include "distributed/device_group.h"
#include "distributed/greet.h"
#include "distributed/rendezvous_store.h"
#include "distributed/shared_window.h"
#include "distributed/store_heartbeat.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/distributed/board.h"

namespace finetune {
namespace {

// Rank 0 may write or evaluate for hours while the other ranks wait.
constexpr std::chrono::hours kNoLimit{24 * 365};

// Silences c10d's warnings with stack traces about errors that are reported here.
void quieten_c10d(const char* level) {
  static const bool is_reported = std::getenv("TORCH_CPP_LOG_LEVEL") != nullptr;
  if (is_reported || log::is_enabled(log::Level::kDebug)) return;
  ::setenv("TORCH_CPP_LOG_LEVEL", level, /*overwrite=*/1);
  c10::initLogging();
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

using Device = std::shared_ptr<::gloo::transport::Device>;

Device make_device(const std::string& interface) {
  if (interface.empty()) return c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
  try {
    return c10d::ProcessGroupGloo::createDeviceForInterface(interface);
  } catch (const std::exception& error) {
    log::debug(error.what());
    throw Error(ErrorKind::kConfig, "the environment's GLOO_SOCKET_IFNAME is '" + interface +
                                        "', through which this machine cannot be reached; it has " +
                                        network_interfaces());
  }
}

class GlooWorld final : public World {
 public:
  GlooWorld(const Membership& membership, c10::intrusive_ptr<c10d::Store> store,
            std::unique_ptr<StoreHeartbeat> heartbeat, Device device,
            std::chrono::milliseconds device_limit)
      : rank_(membership.rank),
        size_(membership.size),
        board_(membership.board),
        device_limit_(device_limit),
        store_(std::move(store)),
        heartbeat_(std::move(heartbeat)) {
    auto options = c10d::ProcessGroupGloo::Options::create(kNoLimit);
    options->devices.push_back(std::move(device));
    collective([&] {
      group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(
          store_, static_cast<int>(rank_), static_cast<int>(size_), std::move(options));
    });
  }

  // Waits for the other ranks' messages.
  void leave() { heartbeat_.reset(); }

  [[nodiscard]] int64_t rank() const override { return rank_; }
  [[nodiscard]] int64_t size() const override { return size_; }

  void sum(std::span<double> values) override {
    sum(at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::kDouble));
  }
  void sum(std::span<int64_t> values) override {
    sum(at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::kLong));
  }

  void sum(const Tensor& values) override { begin_sum(values)->wait(); }

  [[nodiscard]] std::unique_ptr<BegunSum> begin_sum(const Tensor& values) override {
    std::unique_ptr<BegunSum> sum;
    if (!values.is_cpu()) {
      device_collective(
          [&] { sum = std::make_unique<DeviceSum>(*this, device_group().begin_sum(values)); });
      return sum;
    }
    std::vector<Tensor> tensors = {values};
    collective([&] { sum = std::make_unique<HostSum>(*this, group_->allreduce(tensors)); });
    return sum;
  }

  [[nodiscard]] std::string broadcast(const std::string& text) override {
    int64_t length = static_cast<int64_t>(text.size());
    broadcast(at::from_blob(&length, {1}, at::kLong), 0);
    std::string result = rank_ == 0 ? text : std::string(static_cast<size_t>(length), '\0');
    if (length > 0) broadcast(at::from_blob(result.data(), {length}, at::kByte), 0);
    return result;
  }

  void broadcast(const Tensor& values, int64_t from) override {
    if (!values.is_cpu()) {
      return device_collective([&] { device_group().broadcast(values, from); });
    }
    std::vector<Tensor> tensors = {values};
    c10d::BroadcastOptions options;
    options.rootRank = from;
    collective([&] { group_->broadcast(tensors, options)->wait(); });
  }

  void all_to_all(const Tensor& output, const Tensor& input,
                  const std::vector<int64_t>& output_sizes,
                  const std::vector<int64_t>& input_sizes) override {
    if (!input.is_cpu()) {
      return device_collective(
          [&] { device_group().all_to_all(output, input, output_sizes, input_sizes); });
    }
    if (board_ != nullptr) {
      const auto size = static_cast<int64_t>(input.element_size());
      const auto in_bytes = [&](std::vector<int64_t> sizes) {
        for (int64_t& one : sizes) one *= size;
        return sizes;
      };
      return through_window([&](SharedWindow& window, const SharedWindow::IsOver& is_over) {
        return window.all_to_all(rank_, bytes_of(output), bytes_of(input), in_bytes(output_sizes),
                                 in_bytes(input_sizes), is_over);
      });
    }
    collective([&] {
      Tensor out = output;
      Tensor in = input;
      std::vector<int64_t> out_sizes = output_sizes;
      std::vector<int64_t> in_sizes = input_sizes;
      group_->alltoall_base(out, in, out_sizes, in_sizes)->wait();
    });
  }

  void all_gather(const Tensor& whole, const Tensor& part) override {
    if (!part.is_cpu()) return device_collective([&] { device_group().all_gather(whole, part); });
    if (board_ != nullptr) {
      return through_window([&](SharedWindow& window, const SharedWindow::IsOver& is_over) {
        return window.all_gather(rank_, bytes_of(whole), bytes_of(part), is_over);
      });
    }
    collective([&] {
      Tensor out = whole;
      Tensor in = part;
      group_->_allgather_base(out, in)->wait();
    });
  }

  [[nodiscard]] std::string connect(const c10::Device& device) override {
    if (devices_) return "";
    std::vector<DeviceOffer> offers;
    for (const std::string& text : gather(nccl_offer(device).text())) {
      offers.push_back(DeviceOffer::of_text(text));
    }
    const std::string reason = reason_against(offers);
    if (!reason.empty()) return reason;
    quieten_c10d("FATAL");  // its errors are thrown too
    try {
      devices_ = join_over_nccl(c10::make_intrusive<c10d::PrefixStore>("nccl", store_),
                                {.rank = rank_,
                                 .size = size_,
                                 .device = device,
                                 .limit = device_limit_,
                                 .is_over = [this] { return is_somebody_lost(); }});
    } catch (const c10::DistError& error) {
      const std::string what = error.what_without_backtrace();
      log::debug(what);
      if (is_somebody_lost()) throw PeerLost("");
      throw Error(ErrorKind::kDevice, "NCCL does not join the processes' GPUs (" +
                                          first_line(what) +
                                          "); NCCL_DEBUG=INFO in the environment tells more, and "
                                          "ddp_backend: gloo does without it");
    }
    device_ = device;
    return "";
  }

  [[nodiscard]] bool reaches(const c10::Device& device) const override {
    return device.is_cpu() || (devices_ && device == device_);
  }

 private:
  class HostSum final : public BegunSum {
   public:
    HostSum(const GlooWorld& world, c10::intrusive_ptr<c10d::Work> work)
        : world_(world), work_(std::move(work)) {}
    void wait() override {
      world_.collective([&] { work_->wait(); });
    }

   private:
    const GlooWorld& world_;
    c10::intrusive_ptr<c10d::Work> work_;
  };

  class DeviceSum final : public BegunSum {
   public:
    DeviceSum(const GlooWorld& world, std::unique_ptr<BegunSum> sum)
        : world_(world), sum_(std::move(sum)) {}
    void wait() override {
      world_.device_collective([&] { sum_->wait(); });
    }

   private:
    const GlooWorld& world_;
    std::unique_ptr<BegunSum> sum_;
  };

  [[nodiscard]] static std::span<std::byte> bytes_of(const Tensor& tensor) {
    FT_CHECK(tensor.is_contiguous(), "a tensor without holes");
    return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
  }

  // Processes that one launcher started share memory.
  template <class Action>
  void through_window(const Action& action) const {
    const CollectiveScope scope;
    if (!action(*board_->window, [this] { return board_->lost_rank >= 0; })) throw PeerLost("");
  }

  template <class Action>
  void collective(const Action& action) const {
    const CollectiveScope scope;
    try {
      action();
    } catch (const std::system_error&) {
      throw;  // a refused thread is a problem of this machine, not of another rank
    } catch (const std::exception& error) {
      // The launcher knows which rank's exit broke the connection.
      lose(error.what(), board_ != nullptr || (heartbeat_ && heartbeat_->is_reported()));
    }
  }

  // A local device error is not another rank's fault.
  template <class Action>
  void device_collective(const Action& action) const {
    const CollectiveScope scope;
    try {
      action();
    } catch (const c10::DistError& error) {
      lose(error.what_without_backtrace(), is_device_loss_reported());
    }
  }

  // Other ranks see no closed connection when a device fails: this rank reports it, and marks on
  // the board that all ranks must exit.
  [[nodiscard]] bool is_device_loss_reported() const {
    if (heartbeat_) return heartbeat_->is_reported();
    return board_ != nullptr && board_->tells_who_is_gone(rank_);
  }

  [[nodiscard]] bool is_somebody_lost() const {
    return (board_ != nullptr && board_->lost_rank >= 0) ||
           (heartbeat_ && heartbeat_->has_verdict());
  }

  [[noreturn]] void lose(const std::string& what, bool is_reported) const {
    log::debug(what);
    throw PeerLost(
        is_reported ? ""
                    : "the connection to another process is lost (" + first_line(what) +
                          "); what was saved is kept: start the processes again to resume from it");
  }

  [[nodiscard]] DeviceGroup& device_group() const {
    FT_CHECK(devices_ != nullptr, "a tensor on a device that was not connected");
    return *devices_;
  }

  int64_t rank_;
  int64_t size_;
  Board* board_;  // the launcher's
  std::chrono::milliseconds device_limit_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::unique_ptr<StoreHeartbeat> heartbeat_;  // outlives the connections to the other ranks
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  c10::Device device_{c10::kCPU};  // the device connected by devices_
  std::unique_ptr<DeviceGroup> devices_;
};

// The launcher monitors ranks that it started.
bool has_heartbeat(const Membership& membership) {
  return membership.board == nullptr && membership.file.empty();
}

std::unique_ptr<StoreHeartbeat> make_heartbeat(const Membership& membership,
                                               c10::intrusive_ptr<c10d::Store> store,
                                               std::chrono::seconds timeout) {
  return std::make_unique<StoreHeartbeat>(
      std::move(store),
      StoreHeartbeat::Options{.rank = membership.rank,
                              .size = membership.size,
                              .holds_store = membership.rank == 0 && !membership.has_agent,
                              .timeout = std::chrono::milliseconds(
                                  static_cast<int64_t>(membership.hang_seconds * 1000)),
                              .idle_timeout = timeout,
                              .leave = [] { ::_exit(kExitStoppedEarly); }});
}

}  // namespace

std::string reason_against_several_processes() { return ""; }

std::shared_ptr<World> join_world(const Membership& membership, const std::string& identity,
                                  int64_t timeout_seconds) {
  quieten_c10d("FATAL");  // rank 0 may not be up yet: all errors are thrown
  set_nccl_environment(membership.interface);
  const std::chrono::seconds timeout(timeout_seconds);
  Device device = make_device(membership.interface);  // report a wrong name before waiting
  PeerTimeout peer_timeout(timeout);
  c10::intrusive_ptr<c10d::Store> store;
  try {
    store = open_store(membership, peer_timeout);
    quieten_c10d("ERROR");
    if (has_heartbeat(membership)) StoreHeartbeat::announce(*store, membership.rank);
    greet(*store, membership, identity, peer_timeout);
  } catch (const c10::Error& error) {
    const std::string what = error.what_without_backtrace();
    interrupt::throw_if_requested("waiting for the other processes");
    throw PeerLost("rank 0, or what the processes met through, is gone (" + first_line(what) +
                   "); start the processes again");
  }
  std::unique_ptr<StoreHeartbeat> heartbeat;
  if (has_heartbeat(membership)) heartbeat = make_heartbeat(membership, store->clone(), timeout);
  return std::make_shared<GlooWorld>(membership, std::move(store), std::move(heartbeat),
                                     std::move(device), timeout);
}

void leave_world(std::shared_ptr<World> world) {
  static_cast<GlooWorld&>(*world).leave();
  static auto* const left = new std::vector<std::shared_ptr<World>>;
  left->push_back(std::move(world));
}

}  // namespace finetune

#else

namespace finetune {

std::string reason_against_several_processes() {
  return "this build has no Gloo, which joins processes; install its headers (libgloo-dev) and "
         "build again";
}

std::shared_ptr<World> join_world(const Membership&, const std::string&, int64_t) {
  throw Error(ErrorKind::kConfig, reason_against_several_processes());
}

void leave_world(std::shared_ptr<World>) {}

}  // namespace finetune

#endif
