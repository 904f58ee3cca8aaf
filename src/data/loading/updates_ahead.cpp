// SPDX-License-Identifier: MIT
#include "data/loading/updates_ahead.h"

#include <algorithm>
#include <utility>

#include "finetune/base/error.h"

namespace finetune {

UpdatesAhead::UpdatesAhead(int64_t threads, int64_t slots, Work work)
    : work_(std::move(work)), slots_(static_cast<size_t>(slots)), pool_(threads) {
  FT_CHECK(slots >= 1, "an update needs a place");
  planned_.reserve(slots_.size());
  for (int64_t i = 0; i < threads; ++i) static_cast<void>(pool_.submit([this] { this->work(); }));
}

UpdatesAhead::~UpdatesAhead() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  planned_changed_.notify_all();
}

std::span<const Batch> UpdatesAhead::take(const Position& position) {
  if (pool_.size() == 0) {
    PreparedUpdate& update = slots_.front().update;
    update.position = position;
    work_.prepare(update);
    return update.view();
  }
  std::unique_lock lock(mutex_);
  if (taken_ != nullptr) taken_->state = State::kFree;
  if (!planned_.empty() && planned_.front()->update.position != position) abandon();
  plan(position, lock);
  taken_ = planned_.front();
  prepared_.wait(lock, [this] { return taken_->state == State::kReady; });
  planned_.erase(planned_.begin());
  if (taken_->failure) std::rethrow_exception(std::exchange(taken_->failure, nullptr));
  return taken_->update.view();
}

void UpdatesAhead::abandon() {
  for (Slot* const slot : planned_) {
    slot->state = slot->state == State::kRunning ? State::kAbandoned : State::kFree;
    slot->failure = nullptr;
  }
  planned_.clear();
}

// Fills a free slot; if all slots are busy with unwanted updates, waits for the first of them.
void UpdatesAhead::plan(const Position& position, std::unique_lock<std::mutex>& lock) {
  if (planned_.empty()) {
    prepared_.wait(lock, [this] { return find(State::kFree) != nullptr; });
  }
  while (Slot* const slot = find(State::kFree)) {
    slot->update.position =
        planned_.empty() ? position : work_.position(planned_.back()->update.position);
    slot->state = State::kPlanned;
    planned_.push_back(slot);
  }
  planned_changed_.notify_all();
}

UpdatesAhead::Slot* UpdatesAhead::find(State state) {
  const auto found =
      std::ranges::find_if(slots_, [&](const Slot& slot) { return slot.state == state; });
  return found == slots_.end() ? nullptr : &*found;
}

void UpdatesAhead::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto next = std::ranges::find_if(
        planned_, [](const Slot* slot) { return slot->state == State::kPlanned; });
    if (stopping_) return;
    if (next == planned_.end()) {
      planned_changed_.wait(lock);
    } else {
      prepare(**next, lock);
    }
  }
}

void UpdatesAhead::prepare(Slot& slot, std::unique_lock<std::mutex>& lock) {
  slot.state = State::kRunning;
  lock.unlock();
  std::exception_ptr failure;
  try {
    work_.prepare(slot.update);
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  const bool is_wanted = slot.state == State::kRunning;
  slot.state = is_wanted ? State::kReady : State::kFree;
  slot.failure = is_wanted ? failure : nullptr;
  prepared_.notify_one();
}

}  // namespace finetune
