// SPDX-License-Identifier: MIT
#include "distributed/store_heartbeat.h"

#include <unistd.h>

#include <array>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "distributed/activity.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/distributed/peer_lost.h"

namespace finetune {
namespace {

using Clock = std::chrono::steady_clock;
using Duration = StoreHeartbeat::Duration;

constexpr int kLingeringBeats = 20;
// After a broken connection, a rank that missed this number of heartbeats is dead.
constexpr int kMissedBeats = 3;

const std::string kLeftBeat = "left";
const std::string kSuspect = "heartbeat/suspect";
const std::string kLost = "heartbeat/lost";

std::string beat_key(int64_t rank) { return format_text("heartbeat/beat/{}", rank); }
std::string host_key(int64_t rank) { return format_text("heartbeat/host/{}", rank); }

std::string host_name() {
  std::array<char, 256> name = {};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "";
  return name.data();
}

std::string gone(const std::string& who, const std::string& how) {
  return who + " " + how +
         ", so the other processes exit too; start all processes again to resume from the last "
         "checkpoint";
}

std::string silence(Duration timeout) {
  return format_text("has shown no sign of life for {} s", timeout.count() / 1000);
}

}  // namespace

class StoreHeartbeat::State {
 public:
  State(c10::intrusive_ptr<c10d::Store> store, Options options)
      : store_(std::move(store)),
        options_(std::move(options)),
        seen_(static_cast<size_t>(options_.size)),
        answered_at_(Clock::now()) {
    for (Seen& one : seen_) one.changed_at = answered_at_;
    messenger_ = std::thread([this] { carry(); });
    watchdog_ = std::thread([this] { watch(); });
  }

  ~State() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_all();
    messenger_.join();
    watchdog_.join();
  }

  State(const State&) = delete;
  State& operator=(const State&) = delete;

  bool is_reported() {
    std::unique_lock lock(mutex_);
    suspects_ = true;
    changed_.wait_for(lock, options_.beat * 10, [&] { return has_verdict_; });
    return has_verdict_;
  }

  [[nodiscard]] bool has_verdict() {
    const std::lock_guard lock(mutex_);
    return has_verdict_;
  }

 private:
  struct Seen {
    std::string beat = {};
    Clock::time_point changed_at = {};
  };

  // Communicates with the store, which may take long or forever: the watchdog monitors this thread.
  void carry() {
    int64_t beats = 0;
    IdleWatch watch(options_.idle_timeout);
    try {
      while (!is_over_after(options_.beat)) {
        if (!watch.is_idle(Activity::of_this_process(), Clock::now())) ++beats;
        store_->set(beat_key(options_.rank), std::to_string(beats));
        if (suspects()) store_->set(kSuspect, "1");
        if (options_.rank == 0) {
          find_lost();
        } else {
          ask_who_is_lost();
        }
        const std::lock_guard lock(mutex_);
        answered_at_ = Clock::now();
      }
      store_->set(beat_key(options_.rank), kLeftBeat);
      if (options_.holds_store) linger();
    } catch (const std::exception& error) {
      log::debug(std::string("the store of the processes: ") + error.what());
      const std::lock_guard lock(mutex_);
      // A rank 0 that exited regularly has reported the reason, or the run is finished.
      if (!is_over_) decide(0, first_has_left_ ? "" : gone(first(), "is gone"));
    }
  }

  [[nodiscard]] static std::string first() { return "rank 0, or what the processes met through,"; }

  bool is_over_after(Duration time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [&] { return is_over_; });
  }

  [[nodiscard]] bool suspects() {
    const std::lock_guard lock(mutex_);
    return suspects_ && !has_verdict_;
  }

  void read_beats() {
    std::vector<std::string> keys;
    for (int64_t rank = 0; rank < options_.size; ++rank) keys.push_back(beat_key(rank));
    const std::vector<std::vector<uint8_t>> beats = store_->multiGet(keys);
    const Clock::time_point now = Clock::now();
    for (size_t rank = 0; rank < seen_.size(); ++rank) {
      std::string beat(beats[rank].begin(), beats[rank].end());
      // If this process itself was suspended, the others may have been too.
      if (beat == seen_[rank].beat && now - looked_at_ < pause()) continue;
      seen_[rank] = {.beat = std::move(beat), .changed_at = now};
    }
    looked_at_ = now;
  }

  // A longer pause is this process's own: it was suspended, or the machine slept.
  [[nodiscard]] Duration pause() const { return options_.timeout / 4 + 4 * options_.beat; }

  // Run by rank 0.
  void find_lost() {
    read_beats();
    if (has_verdict()) return;
    const bool is_suspected = store_->check({kSuspect});
    const Clock::time_point now = Clock::now();
    if (!is_suspected) suspected_at_ = now;
    const Duration limit = is_suspected ? options_.beat * kMissedBeats : options_.timeout;
    bool has_somebody_left = false;
    for (size_t rank = 0; rank < seen_.size(); ++rank) {
      if (seen_[rank].beat == kLeftBeat) has_somebody_left = true;
      if (seen_[rank].beat == kLeftBeat || now - seen_[rank].changed_at < limit) continue;
      const auto number = static_cast<int64_t>(rank);
      const std::string host = store_->get_to_str(host_key(number));
      const std::string who = format_text("rank {}{}", rank, host.empty() ? "" : " on " + host);
      tell(number, gone(who, is_suspected ? "is gone" : silence(options_.timeout)));
      return;
    }
    if (is_suspected && has_somebody_left) return tell(0, "");
    if (now - suspected_at_ > 2 * limit) {
      tell(1, gone("the connection between two processes", "broke"));
    }
  }

  void tell(int64_t rank, const std::string& text) {
    store_->set(kLost, format_text("{}\n{}", rank, text));
    const std::lock_guard lock(mutex_);
    decide(rank, text);
  }

  // Run by the other ranks.
  void ask_who_is_lost() {
    const bool first_has_left = store_->get_to_str(beat_key(0)) == kLeftBeat;
    const bool is_known = store_->check({kLost});
    const std::string lost = is_known ? store_->get_to_str(kLost) : "";
    const std::lock_guard lock(mutex_);
    first_has_left_ = first_has_left;
    if (is_known) {
      const size_t line = lost.find('\n');
      decide(std::atoll(lost.c_str()), lost.substr(std::min(line, lost.size() - 1) + 1));
    } else if (first_has_left && suspects_) {
      decide(0, "");
    }
  }

  // Records the dead rank; one rank reports it. Requires: the mutex is locked.
  void decide(int64_t lost_rank, const std::string& text) {
    if (has_verdict_) return;
    const bool is_speaker = options_.rank == (lost_rank == 0 ? 1 : 0);
    if (is_speaker && !text.empty()) log::error(text);
    has_verdict_ = true;
    lost_rank_ = lost_rank;
    is_fault_ = !text.empty();
    changed_.notify_all();
  }

  [[nodiscard]] bool is_lost(int64_t rank) {
    const std::lock_guard lock(mutex_);
    return is_fault_ && lost_rank_ == rank;
  }

  // Waits until the other ranks have left the store, or have read the dead rank from it.
  void linger() {
    const Clock::time_point end = Clock::now() + options_.beat * kLingeringBeats;
    const Clock::time_point read_by = Clock::now() + options_.beat * kMissedBeats;
    while (Clock::now() < (has_verdict() ? read_by : end)) {
      read_beats();
      bool is_last = true;
      for (size_t rank = 1; rank < seen_.size(); ++rank) {
        is_last &= seen_[rank].beat == kLeftBeat || is_lost(static_cast<int64_t>(rank));
      }
      if (is_last) return;
      std::this_thread::sleep_for(options_.beat / 5);
    }
  }

  void watch() {
    std::optional<Clock::time_point> lost_at;
    Clock::time_point looked_at = Clock::now();
    while (!is_over_after(options_.beat)) {
      const Clock::time_point now = Clock::now();
      const std::lock_guard lock(mutex_);
      if (now - looked_at > pause()) answered_at_ = now;  // this process was suspended
      looked_at = now;
      if (!has_verdict_ && now - answered_at_ > options_.timeout) {
        decide(0, gone(first(), silence(options_.timeout)));
      }
      if (!has_verdict_ || !is_fault_) continue;
      if (!lost_at) lost_at = now;
      if (now - *lost_at > kTimeToLeave && options_.leave) options_.leave();
    }
  }

  c10::intrusive_ptr<c10d::Store> store_;
  const Options options_;
  std::vector<Seen> seen_;  // by rank; only used by the messenger thread
  Clock::time_point looked_at_ = Clock::now();
  Clock::time_point suspected_at_ = Clock::now();

  std::mutex mutex_;
  std::condition_variable changed_;
  Clock::time_point answered_at_;
  bool is_over_ = false;
  bool suspects_ = false;
  bool first_has_left_ = false;
  bool has_verdict_ = false;
  bool is_fault_ = false;
  int64_t lost_rank_ = -1;
  std::thread messenger_;
  std::thread watchdog_;
};

void StoreHeartbeat::announce(c10d::Store& store, int64_t rank) {
  store.set(host_key(rank), host_name());
  store.set(beat_key(rank), "0");
}

StoreHeartbeat::StoreHeartbeat(c10::intrusive_ptr<c10d::Store> store, Options options)
    : state_(std::make_unique<State>(std::move(store), std::move(options))) {}

StoreHeartbeat::~StoreHeartbeat() = default;

bool StoreHeartbeat::is_reported() { return state_->is_reported(); }

bool StoreHeartbeat::has_verdict() const { return state_->has_verdict(); }

}  // namespace finetune
