// SPDX-License-Identifier: MIT
// c10d's Gloo, whose headers only this source sees: torch's package has the library without them.
#include "finetune/base/error.h"
#include "finetune/distributed/membership.h"
#include "finetune/distributed/peer_lost.h"
#include "finetune/distributed/world.h"

#ifdef FINETUNE_HAS_GLOO

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <arpa/inet.h>
#include <c10/util/Logging.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "distributed/store_pulse.h"
#include "finetune/base/hash.h"
#include "finetune/base/log.h"

namespace finetune {
namespace {

// Rank 0 may write or evaluate for hours while the others wait.
constexpr std::chrono::hours kNoLimit{24 * 365};

class GlooWorld final : public World {
 public:
  GlooWorld(const Membership& membership, c10::intrusive_ptr<c10d::Store> store,
            std::unique_ptr<StorePulse> pulse)
      : rank_(membership.rank),
        size_(membership.size),
        is_told_(membership.board != nullptr),
        pulse_(std::move(pulse)) {
    auto options = c10d::ProcessGroupGloo::Options::create(kNoLimit);
    options->devices.push_back(
        membership.interface.empty()
            ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
            : c10d::ProcessGroupGloo::createDeviceForInterface(membership.interface));
    meeting([&] {
      group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(
          std::move(store), static_cast<int>(rank_), static_cast<int>(size_), std::move(options));
    });
  }

  [[nodiscard]] int64_t rank() const override { return rank_; }
  [[nodiscard]] int64_t size() const override { return size_; }

  void sum(std::span<double> values) override {
    sum(at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::kDouble));
  }
  void sum(std::span<int64_t> values) override {
    sum(at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::kLong));
  }

  void sum(const Tensor& values) override {
    std::vector<Tensor> tensors = {values};
    meeting([&] { group_->allreduce(tensors)->wait(); });
  }

  [[nodiscard]] std::string broadcast(const std::string& text) override {
    int64_t length = static_cast<int64_t>(text.size());
    broadcast(at::from_blob(&length, {1}, at::kLong), 0);
    std::string result = rank_ == 0 ? text : std::string(static_cast<size_t>(length), '\0');
    if (length > 0) broadcast(at::from_blob(result.data(), {length}, at::kByte), 0);
    return result;
  }

  void broadcast(const Tensor& values, int64_t from) override {
    std::vector<Tensor> tensors = {values};
    c10d::BroadcastOptions options;
    options.rootRank = from;
    meeting([&] { group_->broadcast(tensors, options)->wait(); });
  }

  void all_to_all(const Tensor& output, const Tensor& input,
                  const std::vector<int64_t>& output_sizes,
                  const std::vector<int64_t>& input_sizes) override {
    meeting([&] {
      Tensor out = output;
      Tensor in = input;
      std::vector<int64_t> out_sizes = output_sizes;
      std::vector<int64_t> in_sizes = input_sizes;
      group_->alltoall_base(out, in, out_sizes, in_sizes)->wait();
    });
  }

  void all_gather(const Tensor& whole, const Tensor& part) override {
    meeting([&] {
      Tensor out = whole;
      Tensor in = part;
      group_->_allgather_base(out, in)->wait();
    });
  }

 private:
  template <class Action>
  void meeting(const Action& action) {
    try {
      action();
    } catch (const std::exception& error) {
      const std::string what = error.what();
      log::debug(what);
      const bool is_told = is_told_ || (pulse_ && pulse_->is_told());
      throw PeerLost(is_told ? ""
                             : "the connection to another process is lost (" +
                                   what.substr(0, what.find('\n')) +
                                   "); what was saved is kept: start the processes again to go "
                                   "on from it");
    }
  }

  int64_t rank_;
  int64_t size_;
  bool is_told_;                       // by who started the processes
  std::unique_ptr<StorePulse> pulse_;  // outlives the connections to the others
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

// On this address alone; TCPStore's own socket would listen on all interfaces.
int listen_on(const std::string& host, int64_t port) {
  addrinfo hints = {};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    throw Error(ErrorKind::kConfig,
                "MASTER_ADDR '" + host + "' is no known address; name the machine of rank 0");
  }
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  (void)::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  const bool bound = descriptor >= 0 &&
                     ::bind(descriptor, found->ai_addr, found->ai_addrlen) == 0 &&
                     ::listen(descriptor, SOMAXCONN) == 0;
  const int problem = errno;
  ::freeaddrinfo(found);
  if (!bound) {
    if (descriptor >= 0) ::close(descriptor);
    throw Error(ErrorKind::kConfig, "rank 0 cannot listen on " + host + ":" + std::to_string(port) +
                                        ": " + std::strerror(problem) +
                                        "; set MASTER_PORT to a free port in all processes");
  }
  return descriptor;
}

c10::intrusive_ptr<c10d::Store> make_store(const Membership& membership,
                                           std::chrono::milliseconds timeout) {
  c10::intrusive_ptr<c10d::Store> store;
  if (!membership.file.empty()) {
    store =
        c10::make_intrusive<c10d::FileStore>(membership.file, static_cast<int>(membership.size));
    store->setTimeout(timeout);
  } else {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(membership.port);
    options.isServer = membership.rank == 0 && !membership.has_agent;
    options.waitWorkers = false;
    options.timeout = timeout;
    if (options.isServer) options.masterListenFd = listen_on(membership.host, membership.port);
    store = c10::make_intrusive<c10d::TCPStore>(membership.host, options);
  }
  return c10::make_intrusive<c10d::PrefixStore>("finetune/" + membership.prefix, store);
}

// c10d warns of what is said here in a sentence, with a stack.
void quieten_c10d() {
  if (log::is_enabled(log::Level::kDebug)) return;
  ::setenv("TORCH_CPP_LOG_LEVEL", "ERROR", /*overwrite=*/0);
  c10::initLogging();
}

std::string hello_key(int64_t rank) { return "hello/" + std::to_string(rank); }

// What each process says of itself: "<proof that it knows the token> <identity>".
std::string hello(const Membership& membership, int64_t rank, const std::string& identity) {
  return hash_hex(membership.token + "/" + std::to_string(rank)) + " " + identity;
}

// What all of them said, in one request where the store can.
std::vector<std::vector<uint8_t>> hear_all(c10d::Store& store, int64_t size) {
  std::vector<std::string> keys;
  for (int64_t rank = 0; rank < size; ++rank) keys.push_back(hello_key(rank));
  if (store.hasExtendedApi()) return store.multiGet(keys);
  std::vector<std::vector<uint8_t>> all;
  for (const std::string& key : keys) all.push_back(store.get(key));
  return all;
}

void check_hello(const Membership& membership, c10d::Store& store, const std::string& identity) {
  const std::vector<std::vector<uint8_t>> all = hear_all(store, membership.size);
  for (int64_t rank = 0; rank < membership.size; ++rank) {
    const std::vector<uint8_t>& bytes = all[static_cast<size_t>(rank)];
    const std::string said(bytes.begin(), bytes.end());
    const std::string expected = hello(membership, rank, identity);
    if (said == expected) continue;
    const size_t token = expected.find(' ');
    if (said.substr(0, token) != expected.substr(0, token)) {
      throw Error(ErrorKind::kConfig, "the process that says it is rank " + std::to_string(rank) +
                                          " does not know this job's token; set "
                                          "FINETUNE_JOB_TOKEN to the same value in all processes, "
                                          "or MASTER_PORT to another port");
    }
    throw Error(ErrorKind::kConfig,
                "rank " + std::to_string(rank) +
                    " has another configuration or another version of finetune or torch; start "
                    "all processes with the same ones");
  }
}

// Who was started by this program is watched by it.
bool has_pulse(const Membership& membership) {
  return membership.board == nullptr && membership.file.empty();
}

std::unique_ptr<StorePulse> make_pulse(const Membership& membership,
                                       c10::intrusive_ptr<c10d::Store> store) {
  return std::make_unique<StorePulse>(
      std::move(store),
      StorePulse::Options{.rank = membership.rank,
                          .size = membership.size,
                          .holds_store = membership.rank == 0 && !membership.has_agent,
                          .patience = std::chrono::milliseconds(
                              static_cast<int64_t>(membership.hang_seconds * 1000)),
                          .leave = [] { ::_exit(kExitStoppedEarly); }});
}

}  // namespace

std::string reason_against_several_processes() { return ""; }

std::shared_ptr<World> join_world(const Membership& membership, const std::string& identity,
                                  int64_t timeout_seconds) {
  quieten_c10d();
  const std::chrono::seconds timeout(timeout_seconds);
  c10::intrusive_ptr<c10d::Store> store;
  try {
    store = make_store(membership, timeout);
    if (has_pulse(membership)) StorePulse::announce(*store, membership.rank);
    const std::string mine = hello(membership, membership.rank, identity);
    store->set(hello_key(membership.rank), std::vector<uint8_t>(mine.begin(), mine.end()));
    check_hello(membership, *store, identity);
  } catch (const c10::Error& error) {
    const std::string what = error.what_without_backtrace();
    throw PeerLost("not all " + std::to_string(membership.size) + " processes came within " +
                   std::to_string(timeout_seconds) + " s (" + what.substr(0, what.find('\n')) +
                   "); start them all, or raise ddp_timeout");
  }
  std::unique_ptr<StorePulse> pulse;
  if (has_pulse(membership)) pulse = make_pulse(membership, store->clone());
  return std::make_shared<GlooWorld>(membership, std::move(store), std::move(pulse));
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

}  // namespace finetune

#endif
