// SPDX-License-Identifier: MIT
#include "distributed/rendezvous_store.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "distributed/greet.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/distributed/peer_lost.h"

namespace finetune {
namespace {

constexpr int kAnswerMilliseconds = 200;
constexpr std::chrono::milliseconds kShortestTry{1000};
constexpr std::chrono::milliseconds kLongestTry{8000};

// Listens on this address only; TCPStore's own socket would listen on all interfaces.
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
    throw Error(
        ErrorKind::kConfig,
        format_text(
            "rank 0 cannot listen on {}:{}: {}; set MASTER_PORT to a free port in all processes",
            host, port, std::strerror(problem)));
  }
  return descriptor;
}

// Whether a process listens there. TCPStore itself would retry forever and ignore signals.
bool is_open(const std::string& host, int64_t port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  // An unknown name may belong to a machine that is still starting.
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return false;
  bool is_open = false;
  for (const addrinfo* one = found; one != nullptr && !is_open; one = one->ai_next) {
    const int descriptor = ::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0) continue;
    is_open = ::connect(descriptor, one->ai_addr, one->ai_addrlen) == 0;
    if (!is_open && errno == EINPROGRESS) {
      pollfd answer = {.fd = descriptor, .events = POLLOUT, .revents = 0};
      int problem = 0;
      socklen_t size = sizeof(problem);
      is_open = ::poll(&answer, 1, kAnswerMilliseconds) == 1 &&
                ::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &problem, &size) == 0 &&
                problem == 0;
    }
    ::close(descriptor);
  }
  ::freeaddrinfo(found);
  return is_open;
}

std::string prefix_of(const Membership& membership) { return "finetune/" + membership.prefix; }

bool is_served_by_another(const Membership& membership, c10d::TCPStoreOptions options) {
  options.timeout = kShortestTry;
  try {
    c10d::PrefixStore store(prefix_of(membership),
                            c10::make_intrusive<c10d::TCPStore>(membership.host, options));
    return has_greeted(store, membership.rank);
  } catch (const c10::Error& error) {
    log::debug(error.what_without_backtrace());
    return false;
  }
}

c10::intrusive_ptr<c10d::Store> serve(const Membership& membership, c10d::TCPStoreOptions options) {
  try {
    options.masterListenFd = listen_on(membership.host, membership.port);
  } catch (const Error&) {
    if (!is_served_by_another(membership, options)) throw;
    throw Error(ErrorKind::kConfig,
                format_text("another process says that it is rank 0 of this job too, and listens "
                            "on {}:{} already; give each process its own rank",
                            membership.host, membership.port));
  }
  options.isServer = true;
  return c10::make_intrusive<c10d::TCPStore>(membership.host, options);
}

c10::intrusive_ptr<c10d::Store> connect(const Membership& membership, c10d::TCPStoreOptions options,
                                        PeerTimeout& peer_timeout) {
  const std::string where = format_text("{}:{}", membership.host, membership.port);
  const std::string whom = membership.has_agent ? "torchrun's server" : "rank 0";
  options.timeout = kShortestTry;
  std::string answer;
  while (true) {
    if (is_open(membership.host, membership.port)) {
      try {
        return c10::make_intrusive<c10d::TCPStore>(membership.host, options);
      } catch (const c10::Error& error) {
        log::debug(error.what_without_backtrace());
        answer = " (what answers there is another program, or too slow)";
        options.timeout = std::min(2 * options.timeout, kLongestTry);
      }
    }
    interrupt::throw_if_requested("waiting for the other processes");
    if (peer_timeout.wait([&] { return whom + " at " + where; })) continue;
    throw PeerLost(
        format_text("{} was not at {} within {} s{}; start all {} processes, or raise ddp_timeout",
                    whom, where, peer_timeout.seconds(), answer, membership.size));
  }
}

// c10d's stores read, write and lock in their destructors, where an error would end the process by
// std::terminate after everything was saved. So none of them is destroyed.
c10::intrusive_ptr<c10d::Store> keep_until_exit(c10::intrusive_ptr<c10d::Store> store) {
  static std::mutex mutex;
  static auto* const stores = new std::vector<c10::intrusive_ptr<c10d::Store>>;
  const std::lock_guard lock(mutex);
  return stores->emplace_back(std::move(store));
}

}  // namespace

c10::intrusive_ptr<c10d::Store> open_store(const Membership& membership,
                                           PeerTimeout& peer_timeout) {
  c10::intrusive_ptr<c10d::Store> store;
  if (!membership.file.empty()) {
    store =
        c10::make_intrusive<c10d::FileStore>(membership.file, static_cast<int>(membership.size));
  } else {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(membership.port);
    options.waitWorkers = false;
    options.timeout = peer_timeout.left();
    const bool serves = membership.rank == 0 && !membership.has_agent;
    store = serves ? serve(membership, options) : connect(membership, options, peer_timeout);
  }
  store = keep_until_exit(std::move(store));
  store->setTimeout(peer_timeout.left());
  return c10::make_intrusive<c10d::PrefixStore>(prefix_of(membership), store);
}

std::string network_interfaces() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return "";
  std::vector<std::string> names;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (std::ranges::find(names, one->ifa_name) == names.end()) names.emplace_back(one->ifa_name);
  }
  ::freeifaddrs(all);
  return join(names);
}

}  // namespace finetune
