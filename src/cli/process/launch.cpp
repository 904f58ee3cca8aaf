// SPDX-License-Identifier: MIT
#include "cli/process/launch.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "cli/process/outcome.h"
#include "cli/process/start_gate.h"
#include "finetune/base/error.h"
#include "finetune/base/forwarded_signal.h"
#include "finetune/base/hash.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log_format.h"
#include "finetune/base/stop_signals.h"
#include "finetune/base/text.h"
#include "finetune/base/version.h"
#include "finetune/config/dump.h"
#include "finetune/distributed/board.h"
#include "finetune/distributed/world.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/tpu.h"
#include "finetune/train/accelerator.h"
#include "finetune/train/run.h"

#if defined(FINETUNE_COVERAGE)
extern "C" void __gcov_dump();  // of the compiler's library
#endif

namespace finetune::cli {
namespace {

std::optional<std::string> variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

double hang_seconds() {
  const auto seconds = variable("FINETUNE_TEST_HANG_SECONDS");
  return seconds ? std::atof(seconds->c_str()) : Membership{}.hang_seconds;
}

// Returns the names of the usable accelerators without the driver, which must not be used before a
// fork.
std::vector<std::string> accelerators() {
  std::vector<std::string> names;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    std::istringstream list(visible);
    for (std::string name; std::getline(list, name, ',') && name != "-1";) names.push_back(name);
    return names;
  }
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", problem)) {
    const std::string name = entry.path().filename();
    const std::string digits = name.starts_with("nvidia") ? name.substr(6) : "";
    const bool is_number =
        std::ranges::all_of(digits, [](char digit) { return digit >= '0' && digit <= '9'; });
    if (!digits.empty() && is_number) names.push_back(std::to_string(names.size()));
  }
  return names;
}

// Gives each rank of a machine another accelerator.
void take_accelerator(const TrainingArgs& args, int64_t local_rank) {
  if (takes_tpu(accelerator_of(args))) return take_tpu_chip(local_rank);
  const std::vector<std::string> names = accelerators();
  if (names.size() < 2) return;
  const std::string& own = names[static_cast<size_t>(local_rank) % names.size()];
  ::setenv("CUDA_VISIBLE_DEVICES", own.c_str(), /*overwrite=*/1);
}

int64_t asked_processes(const LoadedConfig& config) {
  const std::string& text = config.args.num_processes;
  if (text == "auto") {
    if (accelerator_of(config.args) == Accelerator::kCpu) return 1;
    if (takes_tpu(accelerator_of(config.args))) return std::max<int64_t>(1, tpu_chips());
    return std::max<int64_t>(1, static_cast<int64_t>(accelerators().size()));
  }
  int64_t count = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), count);
  const bool is_number = result.ec == std::errc() && result.ptr == text.data() + text.size();
  if (!is_number || count < 1 || count > static_cast<int64_t>(Board::kMostProcesses)) {
    throw Error(ErrorKind::kConfig,
                format_text("{}: num_processes: '{}' must be a whole number from 1 to {}, or auto",
                            config.where("num_processes"), text, Board::kMostProcesses));
  }
  return count;
}

// Returns a hash of everything that must be equal in all ranks.
std::string identity_of(const TrainingArgs& args) {
  nlohmann::ordered_json keys = to_json(args);
  for (const char* own : {"local_rank", "num_processes"}) keys.erase(own);
  return hash_hex(std::string(kVersion) + " " + torch_version() + " " + keys.dump());
}

std::string make_token() {
  std::array<unsigned char, 32> bytes = {};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw Error(ErrorKind::kIo,
                std::string("no random numbers for a token: ") + std::strerror(errno));
  }
  return {bytes.begin(), bytes.end()};
}

// Creates the rendezvous file in memory, accessible only to this user: nothing is left behind and
// no port is needed.
std::string make_rendezvous() {
  const int descriptor = ::memfd_create("finetune-processes", MFD_CLOEXEC);
  if (descriptor < 0) {
    throw Error(ErrorKind::kIo,
                std::string("no memory for the processes to meet in: ") + std::strerror(errno));
  }
  return format_text("/proc/self/fd/{}", descriptor);
}

bool has_left_world = false;

// Leaves the world, also when an exception ends the work.
class Departure {
 public:
  explicit Departure(std::shared_ptr<World> world) : world_(std::move(world)) {}
  Departure(const Departure&) = delete;
  Departure& operator=(const Departure&) = delete;
  ~Departure() {
    has_left_world = true;
    leave_world(std::move(world_));
  }

 private:
  std::shared_ptr<World> world_;
};

int be_member(const Membership& membership, const LoadedConfig& config,
              const std::function<int(std::shared_ptr<World>)>& work) {
  const std::string name = format_text("rank {}", membership.rank);
  log::set_origin(name, membership.rank == 0 ? log::Level::kError : log::Level::kDebug);
  // Log level until the run sets it. Of ranks started by this program, only rank 0 reports why they
  // wait.
  log::set_level(membership.board != nullptr && membership.rank != 0 ? "error"
                                                                     : config.args.log_level);
  // Starts before the ranks connect, so that a rank that hangs while connecting is detected too.
  std::optional<Heartbeat> heartbeat;
  const std::chrono::seconds idle_timeout(config.args.ddp_timeout);
  if (membership.board != nullptr) {
    heartbeat.emplace(*membership.board, membership.rank, idle_timeout);
  }
  take_accelerator(config.args, membership.local_rank);
  // The ranks of a machine share its processors.
  if (membership.launcher.empty() && !variable("OMP_NUM_THREADS")) {
    set_num_threads(std::max(1, num_threads() / static_cast<int>(membership.size)));
  }
  const auto world = join_world(membership, identity_of(config.args), config.args.ddp_timeout);
  const Departure departure(world);
  return work(world);
}

class Launcher {
 public:
  Launcher(int64_t processes, const LoadedConfig& config,
           const std::function<int(std::shared_ptr<World>)>& work)
      : config_(config),
        work_(work),
        board_(make_board(processes)),
        children_(static_cast<size_t>(processes)) {}

  int run() {
    block_signals();
    const Membership one{.size = static_cast<int64_t>(children_.size()),
                         .file = make_rendezvous(),
                         .token = make_token(),
                         .board = &board_};
    for (size_t rank = 0; rank < children_.size(); ++rank) start(one, rank);
    gate_.open(children_.size());
    while (std::ranges::any_of(children_, [](const Child& child) { return child.is_running; })) {
      wait_for_news();
      reap();
      find_hung();
    }
    return code();
  }

 private:
  struct Child {
    pid_t process = 0;
    bool is_running = false;
    int64_t beats = -1;
    double beaten_at = 0.0;
  };

  void block_signals() {
    sigset_t held;
    sigfillset(&held);
    for (const int number : {SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT, SIGSEGV, SIGBUS, SIGFPE, SIGILL,
                             SIGABRT, SIGTRAP, SIGSYS}) {
      sigdelset(&held, number);
    }
    ::sigprocmask(SIG_BLOCK, &held, &before_);
    ::signal(SIGCHLD, SIG_DFL);
  }

  void start(Membership membership, size_t rank) {
    membership.rank = membership.local_rank = static_cast<int64_t>(rank);
    const pid_t launcher = ::getpid();
    const pid_t process = ::fork();
    if (process < 0) {
      throw Error(ErrorKind::kIo,
                  format_text("cannot start process {}: {}", rank,
                              errno == EAGAIN ? kNoMoreThreads : std::strerror(errno)));
    }
    if (process == 0) {
      // Without the launcher, nobody forwards signals or detects hung ranks.
      ::prctl(PR_SET_PDEATHSIG, SIGTERM);
      ::sigprocmask(SIG_SETMASK, &before_, nullptr);
      if (::getppid() != launcher || !gate_.pass()) ::_exit(kExitStoppedEarly);
      const int code = exit_code_of([&] { return be_member(membership, config_, work_); },
                                    [&](const std::string& text) { return board_.may_say(text); });
      std::cout.flush();
      drop_tpu_memory_cache();
      ::_exit(code);
    }
    children_[rank] = {
        .process = process, .is_running = true, .beaten_at = interrupt::seconds_since_boot()};
  }

  // Waits for a child's end or a stop to forward, at most one second.
  void wait_for_news() {
    const std::vector<int> stops = interrupt::stop_signals();
    sigset_t awaited;
    sigemptyset(&awaited);
    for (const int number : stops) sigaddset(&awaited, number);
    for (const int number : {SIGCHLD, SIGQUIT}) sigaddset(&awaited, number);
    siginfo_t info = {};
    const timespec second = {.tv_sec = 1, .tv_nsec = 0};
    const int number = ::sigtimedwait(&awaited, &info, &second);
    const bool is_stop = std::ranges::find(stops, number) != stops.end();
    if (!is_stop && number != SIGQUIT) return;
    // The same request may arrive directly and through the parent process.
    const bool is_forwarded = interrupt::is_forwarded(info);
    const int before = std::max(direct_, forwarded_);
    if (number != SIGHUP) {  // the ranks do not count SIGHUP
      ++(is_forwarded ? forwarded_ : direct_);
      if (is_stop && std::max(direct_, forwarded_) == before) return;
    }
    for (const Child& child : children_) {
      if (!child.is_running) continue;
      if (number == SIGQUIT) {
        ::kill(child.process, SIGQUIT);
      } else {
        interrupt::forward(child.process, number);
      }
    }
  }

  void reap() {
    int status = 0;
    pid_t process = 0;
    while ((process = ::waitpid(-1, &status, WNOHANG)) > 0) {
      for (size_t rank = 0; rank < children_.size(); ++rank) {
        if (children_[rank].process != process) continue;
        children_[rank].is_running = false;
        note_end(static_cast<int64_t>(rank), status);
      }
    }
  }

  void note_end(int64_t rank, int status) {
    if (WIFEXITED(status)) {
      const int code = WEXITSTATUS(status);
      const bool is_fault =
          code != kExitFinished && code != kExitStoppedEarly && code != kExitCheckpointsFailed;
      if (is_fault || (code != kExitFinished && fault_ == kExitFinished)) fault_ = code;
      if (is_fault) lose(rank);
      return;
    }
    const int number = WTERMSIG(status);
    if (is_lost_) return;  // ranks killed one after the other, as by a batch system
    // A crash would happen again; a run whose rank was killed can be resumed.
    const bool is_crash = number == SIGSEGV || number == SIGBUS || number == SIGFPE ||
                          number == SIGILL || number == SIGABRT || number == SIGSYS;
    fault_ = is_crash ? 128 + number : kExitStoppedEarly;
    lose(rank);
    if (hung_rank_ == rank) return;
    log::error(
        format_text("rank {} was ended by signal {} ({}), so the other processes exit too; run the "
                    "same command again to resume from the last checkpoint",
                    rank, number, ::strsignal(number)));
  }

  void lose(int64_t rank) {
    is_lost_ = true;
    int64_t none = -1;
    board_.lost_rank.compare_exchange_strong(none, rank);
  }

  void find_hung() {
    const double now = interrupt::seconds_since_boot();
    // If this process itself was suspended, the ranks were too.
    const bool was_stopped = now - looked_at_ > Membership{}.hang_seconds / 4;
    looked_at_ = now;
    for (size_t rank = 0; rank < children_.size(); ++rank) {
      Child& child = children_[rank];
      const int64_t beats = board_.beats[rank];
      if (was_stopped || beats != child.beats) {
        child.beats = beats;
        child.beaten_at = now;
      }
      if (!child.is_running || now - child.beaten_at < hang_seconds_) continue;
      if (!is_lost_) {
        hung_rank_ = static_cast<int64_t>(rank);
        log::error(format_text(
            "rank {} has shown no sign of life for {} s and is ended, so the other processes exit "
            "too; run the same command again to resume from the last checkpoint",
            rank, static_cast<int>(hang_seconds_)));
      }
      ::kill(child.process, SIGKILL);
      child.beaten_at = now;
    }
  }

  [[nodiscard]] int code() const { return fault_; }

  const LoadedConfig& config_;
  const std::function<int(std::shared_ptr<World>)>& work_;
  Board& board_;
  StartGate gate_;
  std::vector<Child> children_;
  sigset_t before_ = {};
  const double hang_seconds_ = hang_seconds();
  double looked_at_ = interrupt::seconds_since_boot();
  int direct_ = 0;
  int forwarded_ = 0;
  bool is_lost_ = false;
  int64_t hung_rank_ = -1;
  int fault_ = kExitFinished;
};

// Checks num_processes against the launcher's number, also for a single process.
void check_asked_number(const LoadedConfig& config, int64_t asked, const Membership& membership) {
  const bool is_set = config.is_set("num_processes") && config.args.num_processes != "auto";
  if (!is_set || membership.size == asked) return;
  const std::string started =
      format_text("{}{}", membership.size, membership.size == 1 ? " process" : " processes");
  throw Error(
      ErrorKind::kConfig,
      format_text("{}: num_processes: {} started {}, which is not the {} that this key asks for; "
                  "leave it out, or start finetune without what {} set in the environment",
                  config.where("num_processes"), membership.launcher, started, asked,
                  membership.launcher));
}

}  // namespace

Launch plan_launch(const LoadedConfig& config) {
  Launch plan{.processes = asked_processes(config),
              .membership = membership_from_environment(variable)};
  if (plan.membership) check_asked_number(config, plan.processes, *plan.membership);
  // There is no other rank to connect to.
  if (plan.membership && plan.membership->size == 1) plan = {};
  const std::string reason = reason_against_several_processes();
  if ((plan.membership || plan.processes > 1) && !reason.empty()) {
    throw Error(ErrorKind::kConfig, config.where("num_processes") + ": num_processes: " + reason);
  }
  check_processes(config, plan.membership ? plan.membership->size : plan.processes);
  return plan;
}

int launch(const Launch& plan, const LoadedConfig& config,
           const std::function<int(std::shared_ptr<World>)>& work) {
  if (plan.membership) {
    Membership one = *plan.membership;
    one.hang_seconds = hang_seconds();
    return be_member(one, config, work);
  }
  if (plan.processes == 1) return work(nullptr);
  return Launcher(plan.processes, config, work).run();
}

void exit_process(int code) {
#if defined(__SANITIZE_ADDRESS__)
  constexpr bool kReportsLeaks = true;
#else
  constexpr bool kReportsLeaks = false;
#endif
  if (kReportsLeaks && !has_left_world) std::exit(code);
#if defined(FINETUNE_COVERAGE)
  __gcov_dump();
#endif
  (void)std::fflush(nullptr);
  drop_tpu_memory_cache();
  ::_exit(code);
}

std::string launched_beside_first() { return other_rank_in_environment(variable); }

bool works_here(const std::string& command) {
  const std::string rank = launched_beside_first();
  if (rank.empty()) return true;
  log::info("finetune " + command + " works in rank 0 alone: the environment says " + rank +
            ", so nothing is done here");
  return false;
}

void refuse_several(const std::string& command, const LoadedConfig& config) {
  const bool is_asked_here = config.where("num_processes") == "command line";
  if (!is_asked_here || asked_processes(config) == 1) return;
  throw Error(ErrorKind::kUsage,
              "num_processes: finetune " + command +
                  " works in one process; leave the key out, or evaluate with finetune train, "
                  "do_train: false and do_eval: true, which takes several");
}

}  // namespace finetune::cli
