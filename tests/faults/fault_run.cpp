// SPDX-License-Identifier: MIT
#include "faults/fault_run.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <nlohmann/json.hpp>

#include "cli/process/commands.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system_stand_in.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/checkpoint/reader.h"
#include "support/file_content.h"
#include "support/paths.h"

namespace finetune::testing {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kHangSeconds = 60;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Runs a command as main() does.
int run_command(const std::vector<std::string>& words) {
  try {
    return cli::run(words);
  } catch (const Error& error) {
    log::error(error.what());
    return error.exit_code();
  } catch (const Interrupted& stop) {
    return kExitStoppedEarly;
  } catch (const std::exception& error) {
    log::error(std::string("internal error: ") + error.what());
    return kExitFailed;
  }
}

int64_t count_threads() {
  return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
}

// FINETUNE_FAULTS_RUN=pairs: every run that is not of a certain kind compares pairs of answers.
RunSettings chosen(RunSettings settings) {
  const char* run = std::getenv("FINETUNE_FAULTS_RUN");
  if (run == nullptr || settings.model_keys != kTinyBert || settings.has_adapter) return settings;
  if (std::string_view(run) != "pairs") {
    throw std::runtime_error("FINETUNE_FAULTS_RUN is pairs, or not set");
  }
  settings.model_keys = kTinyPairs;
  settings.data = source_dir() + "/tests/faults/pairs.jsonl";
  return settings;
}

std::string log_without_times(const std::string& state) {
  JsonLimits limits;
  limits.allow_nan = true;
  const auto json = parse_json(state, "trainer_state.json", ErrorKind::kData, limits);
  std::string log;
  for (const auto& entry : json.at("log_history")) {
    for (const auto& [key, value] : entry.items()) {
      if (key.find("runtime") == std::string::npos && key.find("per_second") == std::string::npos) {
        log += key + "=" + value.dump() + " ";
      }
    }
    log += "\n";
  }
  return log;
}

}  // namespace

FaultRun::FaultRun(const RunSettings& settings) : settings_(chosen(settings)) {
  void* shared = ::mmap(nullptr, sizeof(CaseRecord), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw std::bad_alloc();
  record_ = new (shared) CaseRecord;
  const std::string data = source_dir() + "/tests/fixtures/checkpoints/v1/float32/";
  std::string model_keys = "tokenizer_name: " + data + "tokenizer\n" + settings_.model_keys;
  if (settings_.has_adapter)
    model_keys = make_base(model_keys + "train_file: " + data + "train.txt\n");
  const std::string train_file = settings_.data.empty() ? data + "train.txt" : settings_.data;
  const std::string valid_file = settings_.data.empty() ? data + "valid.txt" : settings_.data;
  if (settings_.data.empty()) model_keys += "max_seq_length: 12\n";
  folder_.write(
      "run.yaml",
      "output_dir: " + output_dir_ + "\ncache_dir: " + folder_ / "cache" +
          "\ntrain_file: " + train_file + "\nvalidation_file: " + valid_file + "\n" + model_keys +
          "preprocessing_num_workers: 1\nmax_steps: " + std::to_string(settings_.steps) +
          "\nsave_steps: " + std::to_string(settings_.save_steps) +
          "\nsave_total_limit: " + std::to_string(settings_.save_total_limit) +
          "\nper_device_train_batch_size: 4\nlearning_rate: " + settings_.learning_rate +
          "\nlogging_steps: 1\neval_strategy: steps\neval_steps: " +
          std::to_string(settings_.eval_steps) + "\nuse_cpu: true\nreport_to: none\n" +
          (settings_.mirrored ? "mirror_dir: " + mirror() + "\n" : "") + settings_.more_keys);
  fs::create_directory(root_);
  // Runs once here, so that all forks inherit what libtorch initialises.
  if (static const int warm = run_command({"train", folder_ / "run.yaml"}); warm != 0) {
    throw std::runtime_error("the run does not work at all");
  }
  // The hash of a base and the reference of pairs are cached, too.
  const bool caches_more = settings_.has_adapter || settings_.model_keys == kTinyPairs;
  if (caches_more && run_command({"train", folder_ / "run.yaml"}) != 0) {
    throw std::runtime_error("the run cannot be trained");
  }
  // The cache of tokens is not modelled: it is complete before any fault.
  if (run_command({"prepare", folder_ / "run.yaml"}) != 0) {
    throw std::runtime_error("the data cannot be prepared");
  }
  // A heartbeat thread may end a moment after its owner.
  for (int i = 0; i < 20'000 && count_threads() != 1; ++i) ::usleep(1000);
  if (count_threads() != 1) throw std::runtime_error("threads are left, which no fork has");
  start_over();
  const double begun = now();
  const Session session = start();
  seconds_ = now() - begun;
  if (session.code != 0) throw std::runtime_error("the unbroken run failed: " + session.said);
  const int64_t count = record_->changes;
  changes_.assign(record_->entries.begin(), record_->entries.begin() + count);
  unbroken_ = outcome();
}

std::string FaultRun::make_base(const std::string& keys) {
  const std::string base = folder_ / "base";
  folder_.write("base.yaml", "output_dir: " + base + "\ncache_dir: " + folder_ / "cache" + "\n" +
                                 keys +
                                 "max_seq_length: 12\npreprocessing_num_workers: 1\nmax_steps: 2\n"
                                 "save_strategy: \"no\"\nuse_cpu: true\nreport_to: none\n");
  if (run_command({"train", folder_ / "base.yaml"}) != 0) {
    throw std::runtime_error("the base cannot be trained");
  }
  return "task: clm\nline_by_line: true\npacking: true\nmodel_name_or_path: " + base + "\n" +
         kAdapterKeys;
}

void FaultRun::start_over(bool make_folder) {
  fs::remove_all(output_dir_);
  fs::remove_all(mirror());
  if (make_folder) fs::create_directories(output_dir_);
}

Session FaultRun::start(const Fault& fault, const std::vector<std::string>& more) {
  record_->clear();
  const std::string said = folder_ / "said";
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    ::alarm(kHangSeconds);
    const int output = ::open(said.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(output, STDERR_FILENO);
    ::dup2(output, STDOUT_FILENO);
    FaultFileSystem files(FileSystem::local(), root_, output_dir_, fault, *record_);
    const FileSystemStandIn stand_in(files);
    interrupt::reset();
    std::vector<std::string> words = {"train", folder_ / "run.yaml"};
    words.insert(words.end(), more.begin(), more.end());
    ::_exit(run_command(words));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
  }
  Session session;
  session.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  session.said = file_content(said);
  const size_t resuming = session.said.find("resuming from ");
  const size_t step = session.said.find(" at step ", resuming);
  if (resuming != std::string::npos && step != std::string::npos) {
    session.resumed = std::stoll(session.said.substr(step + 9));
  } else if (!session.says("training ")) {
    session.resumed = -1;
  }
  return session;
}

std::string FaultRun::finish(int64_t at_least) {
  const Session session = start();
  const std::string said = "\n" + session.said;
  if (session.code != 0) return "the next start ended with " + std::to_string(session.code) + said;
  const bool finished = session.says("already finished");
  if (!finished && session.resumed < at_least) {
    return "step " + std::to_string(at_least) + " was committed, the next start resumed from " +
           std::to_string(session.resumed) + said;
  }
  if (record_->outside > 0) return "changed " + std::string(record_->first_outside.data());
  if (record_->repeated_syncs > 0) return "synced a file again whose sync had failed";
  const std::string different = compare();
  return different.empty() ? different : different + said;
}

std::string FaultRun::compare() const {
  FileSystem& files = FileSystem::local();
  for (const std::string& name : files.list(output_dir_)) {
    if (name.rfind(".tmp", 0) == 0 || name.rfind(".trash", 0) == 0) return name + " is left";
  }
  for (const auto& entry : checkpoint::list_checkpoints(files, output_dir_, true)) {
    if (!entry.whole) return entry.path + " is not whole: " + entry.problem;
    if (!entry.notes.empty()) return entry.path + ": " + entry.notes.front();
  }
  try {
    const Outcome ended = outcome();
    if (ended.model != unbroken_.model) return "other weights";
    const bool is_saved = fs::exists(out("checkpoint-" + std::to_string(settings_.steps)));
    if (is_saved && ended.optimizer != unbroken_.optimizer) return "another optimizer state";
    if (is_saved && ended.schedule != unbroken_.schedule) return "another schedule";
    if (ended.log != unbroken_.log) return "another log:\n" + ended.log + "\n" + unbroken_.log;
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

std::vector<std::string> FaultRun::names(const std::string& part) const {
  std::vector<std::string> found;
  for (const std::string& name : FileSystem::local().list(output_dir_)) {
    if (name.find(part) != std::string::npos) found.push_back(name);
  }
  return found;
}

FaultRun::Outcome FaultRun::outcome() const {
  const std::string last = out("checkpoint-" + std::to_string(settings_.steps)) + "/";
  return {.model = file_content(out(model_file())),
          .optimizer = file_content(last + "optimizer.pt"),
          .schedule = file_content(last + "scheduler.pt"),
          .log = log_without_times(file_content(out("trainer_state.json")))};
}

void FaultRun::keep_as(const std::string& name) {
  fs::remove_all(folder_ / name);
  fs::copy(output_dir_, folder_ / name, fs::copy_options::recursive);
}

void FaultRun::take(const std::string& name) {
  fs::remove_all(output_dir_);
  fs::copy(folder_ / name, output_dir_, fs::copy_options::recursive);
}

int64_t FaultRun::keep_killed_at(const std::string& name, const Position& is_there) {
  const auto number_after = [&](auto begin, auto end) {
    return std::find_if(begin, end, is_there) - begin + 2;
  };
  int64_t at = number_after(changes_.begin(), changes_.end());
  // The log is written concurrently with the saves, so the number of a change varies between runs.
  constexpr int kTries = 100;
  for (int tries = 1;; ++tries) {
    start_over();
    const Session session = start({.action = Fault::Action::kKill, .at = at});
    if (session.code != 137) throw std::runtime_error("no change is like that: " + name);
    const auto begin = record_->entries.begin();
    const int64_t found = number_after(begin, begin + (at - 1));
    if (found == at) break;
    if (tries == kTries) throw std::runtime_error("the change is never at its number: " + name);
    at = found;  // try one later if it has not happened yet
  }
  const int64_t committed = record_->committed;
  keep_as(name);
  return committed;
}

std::vector<CaseRecord::Entry> FaultRun::changes_from(const std::string& name) {
  take(name);
  const Session session = start();
  if (session.code != 0) throw std::runtime_error(session.said);
  return {record_->entries.begin(), record_->entries.begin() + record_->changes};
}

std::string describe(int64_t at, const CaseRecord::Entry& entry) {
  static constexpr std::array kWords = {"create", "append",   "write",  "sync",   "close",
                                        "mkdir",  "sync dir", "rename", "remove", "truncate",
                                        "open",   "read",     "list",   "type",   "free_bytes"};
  return "change " + std::to_string(at) + " (" + kWords.at(static_cast<size_t>(entry.operation)) +
         " " + entry.name.data() + ")";
}

Row::Row(std::string name) : name_(std::move(name)), start_(now()) {
  if (const char* run = std::getenv("FINETUNE_FAULTS_RUN")) name_ += std::string(" ") + run;
}

void Row::add(const std::string& what, const std::string& problem) {
  ++cases_;
  if (problem.empty()) return;
  ++failures_;
  if (failures_ <= 10) ADD_FAILURE() << name_ << ", " << what << ": " << problem;
}

Row::~Row() {
  const double seconds = now() - start_;
  std::printf("%s %lld cases, %lld failures, %.0f s\n", name_.c_str(),
              static_cast<long long>(cases_), static_cast<long long>(failures_), seconds);
  EXPECT_GT(cases_, 0);
  EXPECT_EQ(failures_, 0);
  const char* folder = std::getenv("FINETUNE_FAULTS_RESULTS");
  if (folder == nullptr) return;
  const nlohmann::ordered_json json = {{"row", name_},
                                       {"cases", cases_},
                                       {"failures", failures_},
                                       {"seed", base_seed()},
                                       {"seconds", std::round(seconds)}};
  std::ofstream(std::string(folder) + "/" + name_ + ".json") << json.dump() << "\n";
}

int64_t scaled(int64_t usual) {
  const char* scale = std::getenv("FINETUNE_FAULTS_SCALE");
  return scale == nullptr
             ? usual
             : std::max<int64_t>(
                   1, static_cast<int64_t>(std::atof(scale) * static_cast<double>(usual)));
}

bool is_chosen(int64_t i) {
  constexpr int64_t kParts = 1000;
  const int64_t every = std::max<int64_t>(1, kParts / scaled(kParts));
  return (i + static_cast<int64_t>(base_seed())) % every == 0;
}

uint64_t base_seed() {
  const char* seed = std::getenv("FINETUNE_FAULTS_SEED");
  return seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10);
}

}  // namespace finetune::testing
