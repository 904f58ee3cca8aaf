// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace finetune {

// What Board is for the ranks of one machine, for ranks that another launcher started on several:
// each writes heartbeats to the store through which they met, rank 0 detects missing ones, and the
// others read its verdict there. Connections are not enough: a machine that is switched off closes
// none.
class StoreHeartbeat {
 public:
  using Duration = std::chrono::milliseconds;

  struct Options {
    int64_t rank = 0;
    int64_t size = 1;
    bool holds_store = false;  // the store ends with this process
    Duration beat{500};
    Duration timeout{45'000};  // without a sign of life
    // A process that was idle for that long stops writing heartbeats.
    Duration idle_timeout{1'800'000};
    // Ends the process, some time after somebody was lost: it may wait for that one, or compute.
    std::function<void()> leave = {};
  };

  // Call it before the others can meet this rank: from here on they expect its heartbeats.
  static void announce(c10d::Store& store, int64_t rank);

  // `store` is this object's own connection. Requires: all processes have announced themselves.
  StoreHeartbeat(c10::intrusive_ptr<c10d::Store> store, Options options);
  // Announces a regular exit of this rank. The owner of the store waits for some seconds until the
  // others have left.
  ~StoreHeartbeat();
  StoreHeartbeat(const StoreHeartbeat&) = delete;
  StoreHeartbeat& operator=(const StoreHeartbeat&) = delete;

  // For a rank whose connection to another one broke: waits some seconds until the dead rank is
  // known. True: it was reported, by this process or by another.
  [[nodiscard]] bool is_told();
  // Whether by now it is clear, to this process too, that somebody is gone or has left.
  [[nodiscard]] bool has_verdict() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace finetune
