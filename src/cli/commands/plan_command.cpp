// SPDX-License-Identifier: MIT
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/process/command_line.h"
#include "cli/process/commands.h"
#include "cli/process/own_runs.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/config/techniques.h"
#include "finetune/train/plan.h"

namespace finetune::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPlanHelp =
    R"(usage: finetune plan CONFIG [--key value ...] [--memory SIZE] [--measure STEPS] [--json]

Predicts the memory of a run by part, before any training, and compares it with the memory of this
machine (of the accelerator and of the host). Reads the tokenizer and the data, and allocates no
weights. With memory_budget it prints the techniques that a run would choose to stay below it.

  --memory SIZE    find the largest batch for this memory, such as 16GiB; default: this machine's
  --measure STEPS  also train STEPS steps in a temporary folder, with a save, and print the measured
                   peak of resident memory and the time of the whole run
  --json           the plan as JSON

If not even one row at a time fits, the exit code is 2.

It also prints the cost of the whole run by the shipped price list: all rows if `hardware` names one
or gives your own figures. With --measure the row of this machine is measured; the others are scaled
by the vendors' peak figures, which is rough.
)";

void measure(const ConfigWords& words, int64_t steps, Json& plan) {
  const ScratchFolder folder("plan");
  const std::string output = join_path(folder.path(), "run");
  const std::string peak_file = join_path(folder.path(), "peak.json");
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
                         "--mirror_dir=null",
                         "--write_peak=" + peak_file};
  arguments.insert(arguments.end(), kUnlimited.begin(), kUnlimited.end());
  arguments.insert(arguments.end(), own.begin(), own.end());
  const OwnRun run = run_self(arguments, "to measure");
  if (run.code != 0) {
    throw Error(
        ErrorKind::kIo,
        format_text(
            "the run that was to be measured ended with exit code {}; the message above says why",
            run.code));
  }
  const Json results = read_json_file(join_path(output, "train_results.json"));
  const double seconds = results.at("train_runtime").get<double>() / static_cast<double>(steps);
  plan[plan.at("is_device").get<bool>() ? "measured_host_peak" : "measured_peak"] =
      run.peak - read_written_peak(peak_file).reclaimable;
  plan["measured_steps"] = steps;
  plan["step_seconds"] = seconds;
  plan["hours"] = seconds * plan.at("steps").get<double>() / 3600.0;
}

// Throws Error(kConfig) if not even one row at a time fits.
void refuse_what_never_fits(const Json& plan) {
  if (plan.at("largest_batch").get<int64_t>() > 0) return;
  const auto mebibytes = [&](const char* name) {
    return std::to_string(plan.at(name).get<int64_t>() >> 20) + " MiB";
  };
  throw Error(ErrorKind::kConfig,
              "no batch fits in " + mebibytes("largest_batch_for") + ": one row at a time needs " +
                  mebibytes("smallest_peak") +
                  " with these keys; add --memory_budget SIZE to see what saves memory, or give "
                  "more memory");
}

}  // namespace

int plan_command(const Arguments& arguments) {
  CommandLine line("plan", kPlanHelp);
  bool as_json = false;
  std::optional<int64_t> steps;
  std::optional<std::string> size;
  line.flag("--json", as_json);
  line.number("--measure", steps);
  line.value("--memory", size);
  if (!line.parse(arguments)) return kExitFinished;
  PlanOptions options;
  if (size) {
    const std::string problem = problem_of_memory_size(*size);
    if (!problem.empty()) throw Error(ErrorKind::kUsage, "--memory " + problem);
    options.memory = parse_memory_size(*size);
  }
  const ConfigWords words = line.config();
  const LoadedConfig config = load_config(words.path, words.overrides);
  validate_with_inputs(config, Purpose::kPlan);
  log::set_level(config.args.log_level);
  for (const std::string& note : config.notes) log::warning(note);
  Json plan = plan_training(config, options);
  if (steps) measure(words, *steps, plan);
  add_costs(config.args, plan);
  std::cout << (as_json ? plan.dump(2) + "\n" : plan_text(plan)) << std::flush;
  refuse_what_never_fits(plan);
  return kExitFinished;
}

}  // namespace finetune::cli
