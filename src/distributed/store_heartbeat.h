// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace finetune {

// The counterpart of Board for ranks that another launcher started on several machines: each writes
// heartbeats to the store of the rendezvous, rank 0 detects missing ones, and the others read its
// verdict there. Connections are not sufficient, because a machine that loses power closes none.
class StoreHeartbeat {
 public:
  using Duration = std::chrono::milliseconds;

  struct Options {
    int64_t rank = 0;
    int64_t size = 1;
    bool holds_store = false;  // the store's server runs in this process
    Duration beat{500};
    Duration timeout{45'000};  // after which a rank without heartbeats is dead
    // A rank that was idle for this long stops writing heartbeats.
    Duration idle_timeout{1'800'000};
    // Ends the process some time after a rank was lost: it may be waiting for that rank, or
    // computing.
    std::function<void()> leave = {};
  };

  // Call it before other ranks can meet this one: from then on they expect its heartbeats.
  static void announce(c10d::Store& store, int64_t rank);

  // `store` is a separate connection for this object. Requires: all ranks have called announce().
  StoreHeartbeat(c10::intrusive_ptr<c10d::Store> store, Options options);
  // Announces a regular exit of this rank. The owner of the store waits for some seconds until the
  // others have left.
  ~StoreHeartbeat();
  StoreHeartbeat(const StoreHeartbeat&) = delete;
  StoreHeartbeat& operator=(const StoreHeartbeat&) = delete;

  // For a rank whose connection to another one broke: waits some seconds until the dead rank is
  // known. Returns true if it was reported by this process or another.
  [[nodiscard]] bool is_reported();
  // Whether this process knows that a rank is dead or has left.
  [[nodiscard]] bool has_verdict() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace finetune
