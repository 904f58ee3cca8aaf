// SPDX-License-Identifier: MIT
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/config_arguments.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/json.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/config/load.h"
#include "finetune/config/validate.h"
#include "finetune/tensor/model_tensors.h"

extern char** environ;

namespace finetune::cli {
namespace {

using Json = nlohmann::ordered_json;

// Runs this very program again and returns its exit code: only a fresh process shows what a restart
// restores.
int run_self(const Arguments& arguments) {
  std::vector<char*> words = {const_cast<char*>("finetune")};
  for (const std::string& argument : arguments)
    words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  pid_t child = 0;
  if (::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, words.data(), environ) != 0) {
    throw Error(ErrorKind::kIo, "cannot start finetune again for the comparison");
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    const char* base = std::getenv("TMPDIR");
    path_ =
        std::string(base != nullptr && *base != '\0' ? base : "/tmp") + "/finetune-verify-XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) {
      throw Error(ErrorKind::kIo,
                  "cannot make a temporary folder '" + path_ + "'; name a place with TMPDIR");
    }
  }
  ~TemporaryFolder() {
    try {
      FileSystem::local().remove_tree(path_);
    } catch (const Error&) {  // left behind; nothing depends on it
    }
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The part of a log entry that does not depend on the clock.
Json without_times(const Json& entry) {
  Json kept;
  for (const auto& [key, value] : entry.items()) {
    const bool is_time =
        key.find("runtime") != std::string::npos || key.find("per_second") != std::string::npos;
    if (!is_time) kept[key] = value;
  }
  return kept;
}

// Empty where both runs are equal, else what differs first.
std::string compare_logs(const std::string& unbroken, const std::string& resumed) {
  const auto history = [](const std::string& folder) {
    return read_json_file(join_path(folder, checkpoint::kTrainerStateFile))["log_history"];
  };
  const Json a = history(unbroken);
  const Json b = history(resumed);
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (i >= a.size() || i >= b.size())
      return "the logs have " + std::to_string(a.size()) + " and " + std::to_string(b.size()) +
             " entries";
    if (without_times(a[i]) != without_times(b[i])) {
      return "step " + a[i].value("step", Json(0)).dump() + ": " + without_times(a[i]).dump() +
             " without and " + without_times(b[i]).dump() + " with the interruption";
    }
  }
  return "";
}

// A piece at a time: the states of a large model are larger than what is free beside it.
bool have_equal_bytes(const std::string& a, const std::string& b) {
  constexpr size_t kPiece = size_t{4} << 20;
  const auto left = FileSystem::local().open(a);
  const auto right = FileSystem::local().open(b);
  if (left->size() != right->size()) return false;
  std::vector<char> one(kPiece);
  std::vector<char> other(kPiece);
  for (uint64_t done = 0; done < left->size(); done += kPiece) {
    const auto size = static_cast<size_t>(std::min<uint64_t>(kPiece, left->size() - done));
    left->read_at(done, one.data(), size);
    right->read_at(done, other.data(), size);
    if (std::memcmp(one.data(), other.data(), size) != 0) return false;
  }
  return true;
}

std::string compare_tensors(const std::string& unbroken, const std::string& resumed) {
  FileSystem& files = FileSystem::local();
  const ModelTensors a = load_model_tensors(files, unbroken);
  const ModelTensors b = load_model_tensors(files, resumed);
  for (const TensorInfo& info : a.tensors()) {
    const Tensor left = a.read(info.name);
    const Tensor right = b.read(info.name);
    // Bytes, not values: NaN equals NaN here and 0.0 differs from -0.0.
    if (left.nbytes() != right.nbytes() ||
        std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) != 0) {
      return "tensor '" + info.name + "'";
    }
  }
  for (const char* name : {checkpoint::kOptimizerFile, checkpoint::kOptimizerTensorsFile,
                           checkpoint::kSchedulerFile, checkpoint::kScalerFile}) {
    const std::string left = join_path(unbroken, name);
    const std::string right = join_path(resumed, name);
    if (files.exists(left) != files.exists(right)) return name;
    if (files.exists(left) && !have_equal_bytes(left, right)) return name;
  }
  return "";
}

void expect_stop(int code, int64_t step) {
  interrupt::throw_if_requested("comparing");
  if (code == kExitStoppedEarly) return;
  if (code == kExitFinished) {
    throw Error(ErrorKind::kUsage, "the run is finished before step " + std::to_string(step) +
                                       "; choose fewer --steps");
  }
  throw Error(ErrorKind::kData, "the run ended with exit code " + std::to_string(code) +
                                    " before step " + std::to_string(step) +
                                    "; see its message above");
}

}  // namespace

int verify_resume_command(const Arguments& arguments) {
  ArgumentReader reader(arguments);
  if (reader.asks_for_help()) {
    std::cout << "usage: finetune verify-resume CONFIG [--key value ...] [--steps 12]\n"
                 "                              [--interrupt_at STEP]\n\n"
                 "Runs your configuration for some steps without and with an interruption, in a\n"
                 "temporary folder, and compares every logged number, every weight and the\n"
                 "optimizer's state bit by bit. Exit code 1 with the first difference otherwise.\n";
    return kExitFinished;
  }
  const int64_t steps = reader.take_number("--steps").value_or(12);
  const int64_t interrupt_at = reader.take_number("--interrupt_at").value_or((steps + 1) / 2);
  if (interrupt_at >= steps) {
    throw Error(ErrorKind::kUsage,
                "--interrupt_at must lie before --steps " + std::to_string(steps));
  }
  const ConfigWords words = reader.config("verify-resume");
  const LoadedConfig config = load_config(words.path, words.overrides);
  validate(config, Purpose::kTrain);

  const TemporaryFolder folder;
  const auto train = [&](const std::string& name, int64_t stop_at) {
    Arguments command = {"train"};
    if (!words.path.empty()) command.push_back(words.path);
    command.insert(command.end(), words.overrides.begin(), words.overrides.end());
    for (const char* word : {"--logging_strategy",
                             "steps",
                             "--logging_steps",
                             "1",
                             "--report_to",
                             "none",
                             "--resume_from_checkpoint",
                             "auto",
                             "--save_strategy",
                             "no",
                             "--save_minutes",
                             "null",
                             "--load_best_model_at_end",
                             "false",
                             "--save_only_model",
                             "false",
                             "--mirror_dir",
                             "null",
                             "--log_level",
                             "warning",
                             "--disable_tqdm",
                             "true",
                             "--output_dir"}) {
      command.emplace_back(word);
    }
    command.push_back(join_path(folder.path(), name));
    command.insert(command.end(), kUnlimited.begin(), kUnlimited.end());
    command.emplace_back("--stop_at_step");
    command.push_back(std::to_string(stop_at));
    expect_stop(run_self(command), stop_at);
    return join_path(join_path(folder.path(), name), checkpoint::checkpoint_name(stop_at));
  };
  std::cerr << "running " << steps << " steps without an interruption\n";
  const std::string unbroken = train("unbroken", steps);
  std::cerr << "running " << interrupt_at << " steps, then the same command again\n";
  train("resumed", interrupt_at);
  const std::string resumed = train("resumed", steps);

  std::string difference = compare_logs(unbroken, resumed);
  if (difference.empty()) difference = compare_tensors(unbroken, resumed);
  if (!difference.empty()) {
    std::cout << "NOT EQUAL: the first difference is " << difference << "\n";
    return kExitFailed;
  }
  std::cout << "equal: " << steps << " steps, interrupted at step " << interrupt_at
            << ", end in the same log, weights and optimizer state, bit for bit\n";
  return kExitFinished;
}

}  // namespace finetune::cli
