// SPDX-License-Identifier: MIT
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/config_arguments.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/config/techniques.h"
#include "finetune/config/validate.h"
#include "finetune/train/plan.h"

extern char** environ;

namespace finetune::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHelp =
    R"(usage: finetune plan CONFIG [--key value ...] [--memory SIZE] [--measure STEPS] [--json]

Predicts, before any training, what memory a run takes, part by part, and whether this machine has
it: the accelerator's where one is used, and then the host's too. No weights are allocated;
tokenizer and data are read. With memory_budget it shows what would be picked to stay inside.

  --memory 16GiB   the memory to find the largest batch for; else what is there
  --measure 3      also train so many steps in a temporary folder, with a save, and show the peak
                   of resident memory that was measured and how long the whole run will take
  --json           the plan as JSON

It also tells what the whole run costs by the shipped price list: all of its rows where `hardware`
names one or gives figures of your own. With --measure the row that is this machine is measured;
the others are scaled by the makers' peak figures, which is rough.
)";

// A folder that is gone with this object.
class MeasuringFolder {
 public:
  MeasuringFolder() {
    const char* base = std::getenv("TMPDIR");
    path_ = std::string(base != nullptr && *base != '\0' ? base : "/tmp") + "/finetune-plan-XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) {
      throw Error(ErrorKind::kIo,
                  "cannot make a temporary folder '" + path_ + "'; name a place with TMPDIR");
    }
  }
  ~MeasuringFolder() {
    try {
      FileSystem::local().remove_tree(path_);
    } catch (const Error&) {  // left behind; nothing depends on it
    }
  }
  MeasuringFolder(const MeasuringFolder&) = delete;
  MeasuringFolder& operator=(const MeasuringFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Run {
  int code = 0;
  int64_t peak = 0;  // resident bytes
};

// This very program in a process of its own, whose peak is not mixed with the planning's.
Run run_self(const Arguments& arguments) {
  std::vector<char*> words = {const_cast<char*>("finetune")};
  for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t child = 0;
  if (::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, words.data(), environ) != 0) {
    throw Error(ErrorKind::kIo, "cannot start finetune again to measure");
  }
  int status = 0;
  rusage usage = {};
  while (::wait4(child, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .peak = static_cast<int64_t>(usage.ru_maxrss) * 1024};
}

void measure(const ConfigWords& words, int64_t steps, Json& plan) {
  const MeasuringFolder folder;
  const std::string output = join_path(folder.path(), "run");
  const std::string count = std::to_string(steps);
  Arguments arguments = {"train"};
  if (!words.path.empty()) arguments.push_back(words.path);
  arguments.insert(arguments.end(), words.overrides.begin(), words.overrides.end());
  const Arguments own = {"--output_dir=" + output,
                         "--max_steps=" + count,
                         "--save_strategy=steps",
                         "--save_steps=" + count,
                         "--eval_strategy=no",
                         "--eval_on_start=false",
                         "--do_eval=false",
                         "--do_predict=false",
                         "--report_to=none",
                         "--load_best_model_at_end=false",
                         "--resume_from_checkpoint=none",
                         "--mirror_dir=null"};
  arguments.insert(arguments.end(), kUnlimited.begin(), kUnlimited.end());
  arguments.insert(arguments.end(), own.begin(), own.end());
  const Run run = run_self(arguments);
  if (run.code != 0) {
    throw Error(ErrorKind::kIo, "the run that was to be measured ended with exit code " +
                                    std::to_string(run.code) + "; what it says stands above");
  }
  const Json results = read_json_file(join_path(output, "train_results.json"));
  const double seconds = results.at("train_runtime").get<double>() / static_cast<double>(steps);
  plan[plan.at("is_device").get<bool>() ? "measured_host_peak" : "measured_peak"] = run.peak;
  plan["measured_steps"] = steps;
  plan["step_seconds"] = seconds;
  plan["hours"] = seconds * plan.at("steps").get<double>() / 3600.0;
}

}  // namespace

int plan_command(const Arguments& arguments) {
  ArgumentReader reader(arguments);
  if (reader.asks_for_help()) {
    std::cout << kHelp;
    return kExitFinished;
  }
  const bool as_json = reader.take_flag("--json");
  const std::optional<int64_t> steps = reader.take_number("--measure");
  PlanOptions options;
  if (const std::optional<std::string> size = reader.take_value("--memory")) {
    options.memory = parse_memory_size(*size);
    if (!options.memory) {
      throw Error(ErrorKind::kUsage,
                  "--memory must be a size such as 16GiB or 12GB, not '" + *size + "'");
    }
  }
  const ConfigWords words = reader.config("plan");
  const LoadedConfig config = load_config(words.path, words.overrides);
  validate(config, Purpose::kTrain);
  log::set_level(config.args.log_level);
  for (const std::string& note : config.notes) log::warning(note);
  Json plan = plan_training(config, options);
  if (steps) measure(words, *steps, plan);
  add_costs(config.args, plan);
  std::cout << (as_json ? plan.dump(2) + "\n" : plan_text(plan)) << std::flush;
  return kExitFinished;
}

}  // namespace finetune::cli
