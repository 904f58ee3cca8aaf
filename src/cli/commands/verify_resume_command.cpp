// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/process/command_line.h"
#include "cli/process/commands.h"
#include "cli/process/own_runs.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/json.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/config/load.h"
#include "finetune/config/validate.h"
#include "finetune/tensor/model_tensors.h"

namespace finetune::cli {
namespace {

using Json = nlohmann::ordered_json;

// Returns a log entry without values that depend on the clock.
Json without_times(const Json& entry) {
  Json kept;
  for (const auto& [key, value] : entry.items()) {
    const bool is_time =
        key.find("runtime") != std::string::npos || key.find("per_second") != std::string::npos;
    if (!is_time) kept[key] = value;
  }
  return kept;
}

// Returns the first difference; empty if both runs have equal logs.
std::string compare_logs(const std::string& unbroken, const std::string& resumed) {
  const auto history = [](const std::string& folder) {
    return read_json_file(join_path(folder, checkpoint::kTrainerStateFile))["log_history"];
  };
  const Json a = history(unbroken);
  const Json b = history(resumed);
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (i >= a.size() || i >= b.size())
      return format_text("the logs have {} and {} entries", a.size(), b.size());
    if (without_times(a[i]) != without_times(b[i])) {
      return "step " + a[i].value("step", Json(0)).dump() + ": " + without_times(a[i]).dump() +
             " without and " + without_times(b[i]).dump() + " with the interruption";
    }
  }
  return "";
}

// Whether the file's content depends on times and paths.
bool is_record(const std::string& name) {
  return name == checkpoint::kTrainerStateFile || name == checkpoint::kFinetuneStateFile;
}

// Returns the first file that only one checkpoint has, or whose checksum differs; empty if there is
// none.
std::string compare_files(const std::string& unbroken, const std::string& resumed) {
  const auto records_of = [](const std::string& folder) {
    const checkpoint::FinishedModel saved =
        checkpoint::inspect_finished_model(FileSystem::local(), folder, true);
    if (!saved.is_valid()) throw Error(ErrorKind::kCheckpoint, describe_damage(saved));
    auto records = saved.manifest->files;
    std::erase_if(records, [](const auto& item) { return is_record(item.first); });
    return records;
  };
  const auto a = records_of(unbroken);
  const auto b = records_of(resumed);
  for (const auto& [name, record] : a) {
    const auto found = b.find(name);
    if (found == b.end() || found->second != record) return name;
  }
  for (const auto& item : b) {
    if (a.count(item.first) == 0) return item.first;
  }
  return "";
}

// Compares the weights by name, because a checksum does not show which tensor differs.
std::string compare_tensors(const std::string& unbroken, const std::string& resumed) {
  FileSystem& files = FileSystem::local();
  const ModelTensors a = load_model_tensors(files, unbroken);
  const ModelTensors b = load_model_tensors(files, resumed);
  for (const TensorInfo& info : a.tensors()) {
    const Tensor left = a.read(info.name);
    const Tensor right = b.read(info.name);
    // Compares bytes, not values: equal NaNs are equal, and 0.0 differs from -0.0.
    if (left.nbytes() != right.nbytes() ||
        std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) != 0) {
      return "tensor '" + info.name + "'";
    }
  }
  return "";
}

// Trains the user's configuration with the keys that the comparison needs.
class Comparison {
 public:
  explicit Comparison(const ConfigWords& words) : words_(words) {}

  // Trains in folder `name` until `step` of `steps` and returns the checkpoint there; nullopt if
  // the run is shorter.
  [[nodiscard]] std::optional<std::string> train(const std::string& name, int64_t step,
                                                 int64_t steps) const {
    Arguments command = {"train"};
    if (!words_.path.empty()) command.push_back(words_.path);
    command.insert(command.end(), words_.overrides.begin(), words_.overrides.end());
    const std::string count = std::to_string(step);
    const Arguments own = {"--logging_strategy=steps",
                           "--logging_steps=1",
                           "--report_to=none",
                           "--resume_from_checkpoint=auto",
                           "--save_strategy=steps",
                           format_text("--save_steps={}", steps),
                           "--save_minutes=null",
                           "--save_total_limit=2",
                           "--load_best_model_at_end=false",
                           "--save_only_model=false",
                           "--mirror_dir=null",
                           "--log_level=warning",
                           "--disable_tqdm=true",
                           "--output_dir=" + output(name),
                           "--stop_at_step",
                           count};
    command.insert(command.end(), kUnlimited.begin(), kUnlimited.end());
    command.insert(command.end(), own.begin(), own.end());
    const OwnRun run = run_self(command, "for the comparison");
    interrupt::throw_if_requested("comparing");
    if (run.code != kExitStoppedEarly && run.code != kExitFinished) {
      throw Error(
          ErrorKind::kData,
          format_text("the run ended with exit code {} before step {}; see its message above",
                      run.code, count));
    }
    const std::string saved = join_path(output(name), checkpoint::checkpoint_name(step));
    if (!FileSystem::local().exists(saved)) return std::nullopt;
    return saved;
  }
  // Returns the number of steps of a run that was shorter than requested.
  [[nodiscard]] int64_t length(const std::string& name) const {
    return read_json_file(join_path(output(name), checkpoint::kTrainerStateFile))
        .value("global_step", int64_t{0});
  }
  void forget(const std::string& name) const { FileSystem::local().remove_tree(output(name)); }

 private:
  [[nodiscard]] std::string output(const std::string& name) const {
    return join_path(folder_.path(), name);
  }

  const ScratchFolder folder_{"verify"};
  const ConfigWords& words_;
};

std::string required(const std::optional<std::string>& saved, int64_t step) {
  if (saved) return *saved;
  throw Error(ErrorKind::kData,
              format_text("the run left no checkpoint at step {}; see its message above", step));
}

// The compared range of a run of `length` steps.
struct Span {
  int64_t steps = 0;
  int64_t interrupt_at = 0;
};

Span fit(std::optional<int64_t> steps, std::optional<int64_t> interrupt_at, int64_t length) {
  constexpr int64_t kSteps = 12;
  const std::string run = format_text("the run has {} step{}", length, length == 1 ? "" : "s");
  if (length < 2) {
    throw Error(ErrorKind::kUsage, run + ", so it cannot be interrupted; raise max_steps");
  }
  if (steps && *steps < 2) {
    throw Error(ErrorKind::kUsage, "--steps must be at least 2, so that a run can be interrupted");
  }
  if (steps && *steps > length) {
    throw Error(ErrorKind::kUsage,
                format_text("{}, fewer than --steps {}; choose fewer --steps", run, *steps));
  }
  Span span{.steps = steps.value_or(std::min(kSteps, length))};
  span.interrupt_at = interrupt_at.value_or((span.steps + 1) / 2);
  if (span.interrupt_at >= span.steps) {
    throw Error(ErrorKind::kUsage,
                format_text("--interrupt_at must be below --steps {}{}", span.steps,
                            span.steps == length && !steps ? ", the whole run" : ""));
  }
  return span;
}

constexpr const char* kVerifyResumeHelp =
    R"(usage: finetune verify-resume [CONFIG] [--key value ...] [--steps N]
                              [--interrupt_at STEP]

Runs your configuration for some steps without and with an interruption, in a
temporary folder, and compares every logged number, every weight and the
optimizer's state bit by bit. If they differ, prints the first difference and exits
with code 1.

  --steps N            steps to compare; 12, or all of a shorter run
  --interrupt_at STEP  where to interrupt; half of the steps
)";

}  // namespace

int verify_resume_command(const Arguments& arguments) {
  CommandLine line("verify-resume", kVerifyResumeHelp);
  std::optional<int64_t> asked;
  std::optional<int64_t> interrupt_at;
  line.number("--steps", asked);
  line.number("--interrupt_at", interrupt_at);
  if (!line.parse(arguments)) return kExitFinished;
  const ConfigWords words = line.config();
  const LoadedConfig config = load_config(words.path, words.overrides);
  validate(config, Purpose::kTrain);
  const int64_t most = config.args.max_steps > 0 ? config.args.max_steps : INT64_MAX;
  Span span = fit(asked, interrupt_at, most);

  const Comparison comparison(words);
  std::cerr << "running " << span.steps << " steps without an interruption\n";
  std::optional<std::string> saved = comparison.train("unbroken", span.steps, span.steps);
  if (!saved) {  // the number of steps in the epochs is known only now
    span = fit(asked, interrupt_at, comparison.length("unbroken"));
    std::cerr << "the whole run has " << span.steps << " steps: running these\n";
    comparison.forget("unbroken");
    saved = comparison.train("unbroken", span.steps, span.steps);
  }
  const std::string unbroken = required(saved, span.steps);
  std::cerr << "running " << span.interrupt_at << " steps, then the same command again\n";
  (void)required(comparison.train("resumed", span.interrupt_at, span.steps), span.interrupt_at);
  const std::string resumed =
      required(comparison.train("resumed", span.steps, span.steps), span.steps);

  std::string difference = compare_logs(unbroken, resumed);
  if (difference.empty()) difference = compare_tensors(unbroken, resumed);
  if (difference.empty()) difference = compare_files(unbroken, resumed);
  if (!difference.empty()) {
    std::cout << "NOT EQUAL: the first difference is " << printable(difference) << "\n";
    return kExitFailed;
  }
  std::cout << "equal: " << span.steps << " steps, interrupted at step " << span.interrupt_at
            << ", end in the same log, weights and optimizer state, bit for bit\n";
  return kExitFinished;
}

}  // namespace finetune::cli
