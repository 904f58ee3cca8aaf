// SPDX-License-Identifier: MIT
#include "finetune/checkpoint/mirror.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "checkpoint/mirror_folder.h"
#include "finetune/base/background_task.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/layout.h"

namespace finetune::checkpoint {
namespace {

constexpr std::chrono::seconds kLongestLastCopy{2};
constexpr std::chrono::milliseconds kFinishStep{100};

// Not a std::exception, so that no handler treats it as a failure.
struct Abandoned {};

struct CheckpointJob {
  CheckpointCopy copy;
  RotationPolicy policy;
  bool is_older = false;  // does not trigger a rotation
};

struct FileJob {
  std::string path;
  std::string name;  // of a tree; empty: a single file
  int64_t number = 0;
  // If set, the job removes the unused trees below `name` instead of copying.
  std::optional<std::chrono::seconds> unused = {};
  std::vector<std::string> used = {};
  std::optional<FileRecord> expected = {};  // for a file
  bool verify = false;                      // for a tree
  std::optional<FormerEnd> former = {};
};

}  // namespace

// Shared with the thread, which may hang in a dead mount for longer than the mirror exists.
struct Mirror::Worker {
  explicit Worker(MirrorOptions given)
      : options(std::move(given)),
        folder({.local = options.local,
                .files = options.files,
                .directory = options.directory,
                .may_continue =
                    [this] {
                      if (abandon) throw Abandoned{};
                    },
                .check_fence =
                    [this] {
                      if (abandon) throw Abandoned{};
                      lease->check();
                    },
                .report = [](const std::string& line) { log::warning("mirror: " + line); },
                .clock = options.clock,
                .check = options.check}) {}

  void claim() {
    const std::lock_guard guard(claiming);
    if (lease) return;
    folder.make();
    LeaseOptions wanted = options.lease;
    wanted.files = options.files;
    wanted.folder = options.directory;
    wanted.clock = options.clock;
    auto taken = std::make_shared<Lease>(std::move(wanted));
    sweep_stale(*options.files, options.directory,
                [](const std::string& line) { log::warning("mirror: " + line); });
    lease = std::move(taken);
    is_claimed = true;
  }

  void run() {
    lower_priority();
    std::unique_lock lock(mutex);
    while (!abandon) {
      if (!has_work()) {
        idle = true;
        wake.notify_all();
        wake.wait(lock, [&] { return abandon || has_work(); });
        idle = false;
        continue;
      }
      if (!work(lock)) pause(lock);
    }
    lock.unlock();
    if (working) folder.discard(working->copy);
    const std::lock_guard guard(claiming);
    lease.reset();
    lock.lock();
    ended = true;
    wake.notify_all();
  }

  [[nodiscard]] bool has_work() const {
    return !lost && (working || waiting || !older.empty() || !queue.empty());
  }

  // Makes one attempt at the next job; returns false if it failed.
  bool work(std::unique_lock<std::mutex>& lock) {
    if (waiting) replace_working(lock);
    if (!working && !older.empty()) {
      working = std::move(older.front());
      older.pop_front();
    }
    const bool copies_checkpoint = working.has_value();
    std::optional<FileJob> file;
    if (!copies_checkpoint) file = queue.front();
    lock.unlock();
    const Attempt attempt = try_to_copy(file);
    if (attempt.is_done && !attempt.succeeded && copies_checkpoint) folder.discard(working->copy);
    lock.lock();
    if (lease && lease->is_lost()) {
      lost = true;
      wake.notify_all();
      return true;
    }
    last_problem_lasts = attempt.lasts;
    lacks_file = lacks_file || attempt.leaves_out_file;
    if (attempt.is_done) {
      count(copies_checkpoint, attempt.succeeded);
      remove(copies_checkpoint, file);
    }
    if (attempt.problem.empty()) {
      recovered();
      return true;
    }
    failed(attempt.problem);
    return false;
  }

  // What became of copying one file or checkpoint.
  struct Attempt {
    bool succeeded = true;
    bool is_done = true;       // else it is tried again
    std::string problem = {};  // that stopped it; empty: none
    bool lasts = false;        // the problem does not pass by itself
    bool leaves_out_file = false;
  };

  // Copies a file, or without one the checkpoint `working`. Holds no lock.
  Attempt try_to_copy(const std::optional<FileJob>& file) {
    const bool copies_checkpoint = !file.has_value();
    Attempt attempt;
    auto& [succeeded, is_done, problem, lasts, leaves_out_file] = attempt;
    try {
      if (options.check_late && !is_claimed) options.check_late();
      claim();
      if (copies_checkpoint) {
        copy(*working);
      } else {
        copy(*file);
      }
    } catch (const Abandoned&) {
      is_done = false;
    } catch (const SourceError& error) {
      const std::string line = what(copies_checkpoint, file) + " is left out: " + error.what();
      if (error.kind() == ErrorKind::kCheckpoint) {
        log::warning("mirror: " + line);
        leaves_out_file = !copies_checkpoint;
      }
      log::debug("mirror: " + line);
      succeeded = false;
    } catch (const Error& error) {
      is_done = succeeded = false;
      problem = error.what();
      lasts =
          error.kind() == ErrorKind::kBusy || (error.kind() == ErrorKind::kIo && !may_pass(error));
    } catch (const Interrupted& stop) {
      is_done = succeeded = false;
      problem = "a stop was asked for while " + std::string(stop.what());
    } catch (const std::exception& failure) {  // out of memory or threads: may be temporary
      is_done = succeeded = false;
      problem = failure.what();
    }
    return attempt;
  }

  // Starts copying the newer checkpoint; drops the older one if it is not complete.
  void replace_working(std::unique_lock<std::mutex>& lock) {
    std::optional<CheckpointJob> former = std::exchange(working, std::nullopt);
    working = std::exchange(waiting, std::nullopt);
    if (!former || former->copy.source == working->copy.source) return;
    if (former->is_older) {
      older.push_front(std::move(*former));
      return;
    }
    ++counted.dropped;
    log::debug("mirror: " + file_name(former->copy.source) + " gives way to a newer checkpoint");
    lock.unlock();
    folder.discard(former->copy);
    lock.lock();
  }

  void copy(CheckpointJob& job) {
    folder.commit(job.copy);
    const std::string name = file_name(job.copy.source);
    log::debug("mirror: " + name + " is copied and verified");
    if (job.is_older) return folder.remove_unfinished();
    if (job.policy.best_step && *job.policy.best_step != job.copy.manifest->step) {
      const std::string best = checkpoint_name(*job.policy.best_step);
      if (!options.files->exists(join_path(options.directory, best))) {
        add_older(join_path(parent_path(job.copy.source), best));
      }
    }
    folder.rotate(job.copy.manifest->run_id, job.policy);
  }

  void copy(const FileJob& job) {
    if (job.unused) {
      folder.remove_unused_trees(job.name, job.used, *job.unused);
    } else if (job.name.empty()) {
      folder.copy_file(job.path, job.expected, job.former);
    } else {
      folder.copy_tree(job.path, job.name, job.verify, job.former);
    }
  }

  static std::string what(bool checkpoint, const std::optional<FileJob>& file) {
    return checkpoint ? "a checkpoint" : "'" + (file->unused ? file->name : file->path) + "'";
  }

  void count(bool checkpoint, bool succeeded) {
    if (!succeeded) {
      counted.dropped += checkpoint;
    } else if (checkpoint) {
      ++counted.checkpoints;
    } else {
      ++counted.files;
    }
  }

  void remove(bool checkpoint, const std::optional<FileJob>& file) {
    if (checkpoint) {
      working.reset();
    } else {  // the same file may have been queued again meanwhile
      std::erase_if(queue, [&](const FileJob& job) { return job.number == file->number; });
    }
  }

  void failed(const std::string& problem) {
    ++counted.failures;
    ++failures_in_a_row;
    last_problem = problem;
    const double now = options.clock->now();
    if (failures_in_a_row > 1 && now < reported_at + options.repeat_warning_seconds) return;
    reported_at = now;
    log::warning("mirror: " + problem + "; training continues, and the copy is retried");
  }

  void recovered() {
    if (failures_in_a_row > 1) {
      log::info(format_text("mirror: '{}' works again after {} failed tries", options.directory,
                            failures_in_a_row));
    }
    failures_in_a_row = 0;
  }

  // Waits until the next attempt; a newer checkpoint or the end of the run interrupts the wait.
  void pause(std::unique_lock<std::mutex>& lock) {
    double seconds = options.first_retry_seconds;
    for (int64_t i = 1; i < failures_in_a_row && seconds < options.longest_retry_seconds; ++i) {
      seconds *= 2;
    }
    seconds = std::min(seconds, options.longest_retry_seconds);
    if (finishing) seconds = std::min(seconds, options.first_retry_seconds);
    hurry = false;
    const double end = options.clock->now() + seconds;
    while (!abandon && !waiting && !hurry && options.clock->now() < end) {
      options.clock->wait(lock, wake, end - options.clock->now());
    }
  }

  void add_older(const std::string& path) {
    const std::lock_guard guard(mutex);
    older.push_back({.copy = CheckpointCopy(path), .policy = {}, .is_older = true});
    wake.notify_all();
  }

  void add(FileJob job) {
    const std::lock_guard guard(mutex);
    std::erase_if(queue, [&](const FileJob& other) {
      return other.path == job.path && other.name == job.name;
    });
    job.number = ++jobs;
    queue.push_back(std::move(job));
    wake.notify_all();
  }

  MirrorOptions options;
  MirrorFolder folder;
  std::mutex claiming;
  std::shared_ptr<Lease> lease;
  std::atomic<bool> is_claimed{false};
  std::atomic<bool> abandon{false};
  std::atomic<bool> lost{false};

  mutable std::mutex mutex;  // guards the members below
  std::condition_variable wake;
  std::optional<CheckpointJob> working;  // used by the thread without the lock while it copies
  std::optional<CheckpointJob> waiting;
  std::deque<CheckpointJob> older;
  std::deque<FileJob> queue;
  int64_t jobs = 0;
  MirrorCounts counted;
  int64_t failures_in_a_row = 0;
  double reported_at = 0;
  std::string last_problem;
  bool last_problem_lasts = false;  // retrying soon cannot help
  bool lacks_file = false;          // a local file did not match its record and was not copied
  bool finishing = false;
  bool hurry = false;
  bool idle = false;
  bool ended = false;
};

Mirror::Mirror(MirrorOptions options) : worker_(std::make_shared<Worker>(std::move(options))) {
  try {
    std::thread([worker = worker_] { worker->run(); }).detach();
  } catch (const std::system_error& error) {
    throw Error(ErrorKind::kIo, "the system has no thread for copying to the mirror '" +
                                    directory() + "' (" + error.what() +
                                    "); allow this user more processes");
  }
}

Mirror::~Mirror() {
  std::unique_lock lock(worker_->mutex);
  worker_->abandon = true;
  worker_->wake.notify_all();
  worker_->wake.wait_for(lock, kLongestLastCopy, [&] { return worker_->ended; });
}

void Mirror::claim() { worker_->claim(); }

void Mirror::copy_checkpoint(const std::string& path, const RotationPolicy& policy) {
  const std::lock_guard guard(worker_->mutex);
  if (worker_->waiting) ++worker_->counted.dropped;
  worker_->waiting = CheckpointJob{.copy = CheckpointCopy(path), .policy = policy};
  worker_->wake.notify_all();
}

void Mirror::copy_older(const std::string& path) { worker_->add_older(path); }

void Mirror::copy_file(const std::string& path, const std::optional<FileRecord>& expected,
                       const std::optional<FormerEnd>& former) {
  worker_->add({.path = path, .name = "", .used = {}, .expected = expected, .former = former});
}

void Mirror::copy_tree(const std::string& folder, const std::string& name, bool verify,
                       const std::optional<FormerEnd>& former) {
  FT_CHECK(is_tree_path(name), "a mirrored tree is called " + name);
  worker_->add({.path = folder, .name = name, .used = {}, .verify = verify, .former = former});
}

void Mirror::remove_unused_trees(const std::string& parent, const std::vector<std::string>& used,
                                 std::chrono::seconds unused) {
  FT_CHECK(is_tree_path(parent), "a mirrored tree is called " + parent);
  worker_->add({.path = "", .name = parent, .unused = unused, .used = used});
}

bool Mirror::wait(double seconds, const std::function<bool()>& give_up) {
  Worker& worker = *worker_;
  std::unique_lock lock(worker.mutex);
  worker.finishing = worker.hurry = true;
  worker.wake.notify_all();
  const double end = worker.options.clock->now() + seconds;
  const auto is_done = [&] { return worker.lost || (worker.idle && !worker.has_work()); };
  const int64_t failures = worker.counted.failures;
  const auto is_hopeless = [&] {
    return worker.last_problem_lasts && worker.counted.failures > failures;
  };
  while (!is_done() && !is_hopeless() && worker.options.clock->now() < end &&
         !(give_up && give_up())) {
    worker.wake.wait_for(lock, kFinishStep);
  }
  worker.finishing = false;
  return !worker.lost && !worker.lacks_file && is_done();
}

bool Mirror::finish(double seconds, const std::function<bool()>& give_up) {
  if (wait(seconds, give_up)) return true;
  const std::lock_guard guard(worker_->mutex);
  const std::string& problem = worker_->last_problem;
  log::warning("mirror: '" + directory() + "' is incomplete" +
               (problem.empty() ? "" : " (" + problem + ")"));
  return false;
}

bool Mirror::is_lost() const {
  if (worker_->lost) return true;
  if (!worker_->is_claimed) return false;  // claiming may take long
  const std::lock_guard guard(worker_->claiming);
  return worker_->lease && worker_->lease->is_lost();
}

void Mirror::check() {
  if (!is_lost()) return;
  const std::lock_guard guard(worker_->claiming);
  worker_->lease->check();
}

MirrorCounts Mirror::counts() const {
  const std::lock_guard guard(worker_->mutex);
  return worker_->counted;
}

const std::string& Mirror::directory() const { return worker_->options.directory; }

}  // namespace finetune::checkpoint
