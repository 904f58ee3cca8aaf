// SPDX-License-Identifier: MIT
#include "distributed/meeting_store.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/base/hash.h"

namespace finetune {
namespace {

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

}  // namespace

c10::intrusive_ptr<c10d::Store> open_store(const Membership& membership,
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

void greet(c10d::Store& store, const Membership& membership, const std::string& identity) {
  const std::string mine = hello(membership, membership.rank, identity);
  store.set(hello_key(membership.rank), std::vector<uint8_t>(mine.begin(), mine.end()));
  check_hello(membership, store, identity);
}

}  // namespace finetune
