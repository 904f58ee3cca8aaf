// SPDX-License-Identifier: MIT
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "finetune/base/thread_pool.h"
#include "finetune/data/loader.h"
#include "finetune/data/packing_plan.h"

namespace finetune {

// The batches of one update, in reused memory.
struct PreparedUpdate {
  Position position = {};
  std::vector<Batch> batches = {};  // the first `count` are this update's
  size_t count = 0;
  // Temporary memory.
  std::vector<int64_t> rows = {};
  std::vector<int64_t> samples = {};
  std::vector<SampleKey> keys = {};
  PackingPlan::Group group = {};

  // Returns the next batch; it contains data of an earlier update.
  [[nodiscard]] Batch& add() {
    if (count == batches.size()) batches.emplace_back();
    return batches[count++];
  }
  [[nodiscard]] std::span<const Batch> view() const { return std::span(batches).first(count); }
};

// Prepares consecutive updates on threads ahead of use, in a fixed number of slots.
class UpdatesAhead {
 public:
  struct Work {
    std::function<void(PreparedUpdate&)> prepare;       // at its position; thread-safe
    std::function<Position(const Position&)> position;  // after an update
  };

  // Without threads take() prepares the update. Requires: slots >= 1.
  UpdatesAhead(int64_t threads, int64_t slots, Work work);
  ~UpdatesAhead();  // waits for updates in preparation and discards those still queued
  UpdatesAhead(const UpdatesAhead&) = delete;
  UpdatesAhead& operator=(const UpdatesAhead&) = delete;

  // The result is valid until the next take(). Throws what `prepare` threw for this update.
  [[nodiscard]] std::span<const Batch> take(const Position& position);

 private:
  enum class State { kFree, kPlanned, kRunning, kAbandoned, kReady };
  struct Slot {
    State state = State::kFree;
    PreparedUpdate update = {};
    std::exception_ptr failure = {};
  };

  void work();
  void prepare(Slot& slot, std::unique_lock<std::mutex>& lock);
  void abandon();
  void plan(const Position& position, std::unique_lock<std::mutex>& lock);
  [[nodiscard]] Slot* find(State state);

  Work work_;
  std::vector<Slot> slots_;
  std::vector<Slot*> planned_;  // in the order of their updates, including ready ones
  Slot* taken_ = nullptr;
  bool stopping_ = false;
  std::mutex mutex_;
  std::condition_variable planned_changed_;
  std::condition_variable prepared_;
  ThreadPool pool_;  // last: its threads end before the members they use
};

}  // namespace finetune
