// SPDX-License-Identifier: MIT
#include "finetune/checkpoint/lease.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "checkpoint/verified_copy.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/checkpoint/owner.h"

namespace finetune::checkpoint {
namespace {

constexpr uint64_t kMaxRecordBytes = 4096;
constexpr double kNever = -1e18;
// A record is empty for a moment while it is rewritten.
constexpr int kLooksAtAnEmptyRecord = 4;
constexpr double kSecondsBetweenLooks = 0.25;
constexpr double kWatchSeconds = 1.0;
// If two contenders take over a silent record at the same time, reading it after this time shows
// which one succeeded.
constexpr double kFirstBeatSeconds = 2.0;
// A folder on a dead mount must not keep the program from exiting.
constexpr std::chrono::seconds kLongestGoodbye{2};

// The tokens of this process's leases. A record with another token of this process was left by a
// failed write or removal and has no owner.
class LiveTokens {
 public:
  void add(const std::string& token) {
    const std::lock_guard guard(mutex_);
    tokens_.insert(token);
  }
  void remove(const std::string& token) {
    const std::lock_guard guard(mutex_);
    tokens_.erase(token);
  }
  [[nodiscard]] bool has(const std::string& token) {
    const std::lock_guard guard(mutex_);
    return tokens_.count(token) > 0;
  }

 private:
  std::mutex mutex_;
  std::set<std::string> tokens_;
};

LiveTokens& live_tokens() {
  // Never destroyed: a thread may still run during exit.
  static LiveTokens* instance = new LiveTokens;
  return *instance;
}

}  // namespace

// Outlives the lease if its thread hangs in a dead mount.
struct Lease::Shared {
  explicit Shared(LeaseOptions given) : options(std::move(given)), self(this_process()) {
    path = join_path(options.folder, kLockFile);
    if (options.shown.empty()) options.shown = options.folder;
  }

  std::optional<std::string> read() { return read_if_there(*options.files, path, kMaxRecordBytes); }

  void write(const std::string& text) {
    const std::unique_ptr<WritableFile> file = options.files->create(path);
    file->write(text);
    file->close();
    confirmed_at = options.clock->now();
  }

  // Reads the record, and reads it again if it is empty.
  std::string read_settled() {
    for (int look = 1;; ++look) {
      const std::optional<std::string> text = read();
      if (!text) return "";
      if (!text->empty() || options.kernel_lock || look == kLooksAtAnEmptyRecord) return *text;
      options.clock->sleep(kSecondsBetweenLooks);
    }
  }

  [[noreturn]] void busy(const std::string& text) const {
    const std::optional<Owner> owner = parse_owner(text);
    throw Error(ErrorKind::kBusy, "'" + options.shown + "' is in use by " +
                                      (owner ? describe(*owner) : "another process") +
                                      "; wait until it is finished, stop it, or choose another "
                                      "folder");
  }

  void take() {
    live_tokens().add(self.token);
    try {
      take_record();
    } catch (...) {
      live_tokens().remove(self.token);
      throw;
    }
  }

  void take_record() {
    const FileType type = options.files->type(path);
    if (type == FileType::kLink || type == FileType::kOther) {
      throw Error(ErrorKind::kConfig,
                  "'" + path +
                      "' is a link, FIFO or device where the lock of the folder is needed; remove "
                      "it, or choose another folder");
    }
    const std::string text = read_settled();
    const std::optional<Owner> owner = parse_owner(text);
    if (owner && !is_surely_dead(*owner)) {
      if (state_of(*owner, self) == OwnerState::kAlive) busy(text);
      watch(text, *owner);
    }
    ObjectStore* const store = options.files->object_store();
    if (store == nullptr || type != FileType::kMissing) return write(to_text(self));
    if (store->write_new(path, to_text(self))) return;  // the first heartbeat reads it again
    const std::string now = read_settled();
    const std::optional<Owner> faster = parse_owner(now);
    if (!faster || faster->token != self.token) busy(now);  // else a request was repeated
  }

  [[nodiscard]] bool is_surely_dead(const Owner& owner) const {
    if (options.kernel_lock && !owner.boot_id.empty() && owner.boot_id == self.boot_id) return true;
    // This machine after a reboot.
    if (options.kernel_lock && owner.host == self.host && !owner.machine_id.empty() &&
        owner.machine_id == self.machine_id) {
      return true;
    }
    const OwnerState state = state_of(owner, self);
    const bool is_own = state == OwnerState::kAlive && owner.pid == self.pid;
    return state == OwnerState::kDead || (is_own && !live_tokens().has(owner.token));
  }

  // Returns when the owner has been silent for the timeout, or has released the folder.
  void watch(const std::string& text, const Owner& owner) {
    log::info(format_text(
        "'{}' was last used by {}; waiting up to {} s to see whether that is still alive",
        options.shown, describe(owner), static_cast<int>(options.timeout_seconds)));
    const double end = options.clock->now() + options.timeout_seconds;
    while (options.clock->now() < end) {
      interrupt::throw_if_requested("waiting for '" + options.shown + "'");
      options.clock->sleep(kWatchSeconds);
      const std::string now = read_settled();
      if (now == text) continue;
      if (parse_owner(now)) busy(now);
      return;
    }
    log::warning(format_text("'{}' is taken over: {} has been silent for {} s", options.shown,
                             describe(owner), static_cast<int>(options.timeout_seconds)));
  }

  // Whether the record is still ours. A record that is neither empty nor ours shows that another
  // process has owned the folder since, even if it has released it.
  bool look() {
    if (lost) return false;
    if (options.clock->now() - confirmed_at < options.trust_seconds) return true;
    std::optional<std::string> text;
    try {
      text = read();
    } catch (const Error&) {
      return true;
    }
    if (!text || text->empty()) return true;
    const std::optional<Owner> owner = parse_owner(*text);
    if (owner ? owner->token == self.token : text->rfind("released ", 0) != 0) {
      confirmed_at = options.clock->now();
      return true;
    }
    const std::lock_guard guard(mutex);
    taken_by = owner ? describe(*owner) : "another process, which is done";
    lost = true;
    return false;
  }

  void renew() {
    confirmed_at = kNever;
    if (!look()) return;
    ++self.beat;
    try {
      write(to_text(self));
    } catch (const Error& error) {
      log::debug("the lease on '" + options.shown + "' could not be renewed: " + error.what());
    }
  }

  void release() {
    confirmed_at = kNever;
    if (!look()) return;
    try {
      write(released_text(self.token));
    } catch (const Error& error) {
      log::debug("the lease on '" + options.shown + "' could not be released: " + error.what());
    }
  }

  // Nothing above the heartbeat's thread catches what it throws; the next beat may succeed.
  template <typename Action>
  static void unless_out_of_memory(const Action& action) {
    try {
      action();
    } catch (const std::bad_alloc&) {
    }
  }

  void beat_until_stopped() {
    double pause = options.kernel_lock ? options.heartbeat_seconds : kFirstBeatSeconds;
    std::unique_lock lock(mutex);
    while (!stopping && !lost) {
      const double end = options.clock->now() + pause;
      while (!stopping && options.clock->now() < end) {
        options.clock->wait(lock, wake, end - options.clock->now());
      }
      if (stopping) break;
      pause = options.heartbeat_seconds;
      lock.unlock();
      unless_out_of_memory([this] { renew(); });
      lock.lock();
    }
    lock.unlock();
    unless_out_of_memory([this] { release(); });
    live_tokens().remove(self.token);
    lock.lock();
    ended = true;
    wake.notify_all();
  }

  LeaseOptions options;
  std::string path;
  Owner self;  // the heartbeat thread owns its counter
  std::atomic<bool> lost{false};
  std::atomic<double> confirmed_at{kNever};  // by the clock
  std::mutex mutex;                          // guards the members below
  std::condition_variable wake;
  std::string taken_by;
  bool stopping = false;
  bool ended = false;
};

Lease::Lease(LeaseOptions options) : shared_(std::make_shared<Shared>(std::move(options))) {
  shared_->take();
  if (shared_->options.heartbeat_seconds > 0) {
    try {
      std::thread([shared = shared_] { shared->beat_until_stopped(); }).detach();
    } catch (const std::system_error& error) {
      throw Error(ErrorKind::kIo, std::string("the system has no thread for keeping the lock (") +
                                      error.what() + "); allow this user more processes");
    }
  }
}

Lease::~Lease() {
  if (shared_->options.heartbeat_seconds <= 0) {
    shared_->stopping = true;
    shared_->beat_until_stopped();
    return;
  }
  std::unique_lock lock(shared_->mutex);
  shared_->stopping = true;
  shared_->wake.notify_all();
  shared_->wake.wait_for(lock, kLongestGoodbye, [&] { return shared_->ended; });
}

bool Lease::still_ours() { return shared_->look(); }

bool Lease::is_lost() const { return shared_->lost; }

void Lease::check() {
  if (still_ours()) return;
  const std::lock_guard guard(shared_->mutex);
  throw Error(ErrorKind::kBusy, "'" + shared_->options.shown + "' was taken over by " +
                                    shared_->taken_by +
                                    " while this process was silent; nothing more is written "
                                    "there: end one of the two");
}

void Lease::renew() { shared_->renew(); }

}  // namespace finetune::checkpoint
