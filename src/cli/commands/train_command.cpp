// SPDX-License-Identifier: MIT
#include <iostream>
#include <utility>

#include "cli/commands/dry_run.h"
#include "cli/process/command_line.h"
#include "cli/process/commands.h"
#include "cli/process/launch.h"
#include "cli/process/supervisor.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/log.h"
#include "finetune/base/log_format.h"
#include "finetune/base/memory_status.h"
#include "finetune/base/text.h"
#include "finetune/config/dump.h"
#include "finetune/config/load.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/tpu.h"
#include "finetune/train/accelerator.h"
#include "finetune/train/run.h"

namespace finetune::cli {
namespace {

void check_hooks(const LoadedConfig& config) {
  for (const auto& [key, command] : {std::pair{"on_finish_command", config.args.on_finish_command},
                                     {"on_interrupt_command", config.args.on_interrupt_command},
                                     {"on_failure_command", config.args.on_failure_command}}) {
    check_hook(key, command, config.where(key));
  }
}

// Writes the accelerator's peak (0 without one) and the reclaimable part of the host's resident
// memory, for the command that measures this run.
void write_peak(const TrainingArgs& args, const std::string& path) {
  const c10::Device device = pick_device(accelerator_of(args));
  FileSystem::local().write_atomically(
      path,
      format_text("{{\"device\": {}, \"reclaimable\": {}}}",
                  device.is_cpu() ? 0 : peak_memory_bytes(device), reclaimable_resident_memory()));
}

int train(const LoadedConfig& config, const RunOptions& options) {
  const Purpose purpose = purpose_of_training(config.args);
  validate_with_inputs(config, purpose);
  if (purpose == Purpose::kEvaluate) {
    log::info(config.where("do_train") +
              ": do_train is false and do_eval is true: the model is evaluated and not trained "
              "(to train, set do_train: true; a dump of TrainingArguments contains false)");
  }
  if (config.args.output_dir == TrainingArgs{}.output_dir && launched_beside_first().empty()) {
    log::info("checkpoints, results and the model are written to '" + config.args.output_dir +
              "', the default of output_dir");
  }
  check_starting_folder(config);
  if (const std::string note = tpu_note(); !note.empty()) log::warning(note);
  return launch(plan_launch(config), config, [&](std::shared_ptr<World> world) {
    RunOptions own = options;
    own.world = std::move(world);
    return run_training(config, own);
  });
}

constexpr const char* kTrainHelp =
    R"(usage: finetune train [CONFIG] [--key value ...] [options]

Trains a model. The same command, run again, resumes from the newest valid checkpoint
in output_dir. SIGTERM, SIGINT and SIGUSR1 save and exit with code 75; SIGHUP is
ignored (on_sighup: stop makes it save and exit too). CONFIG is a YAML or JSON file;
keys may precede or follow it, and override it. Without CONFIG, give all keys here.

  --dry_run         print a batch with its labels, then try one step, one save and
                    one resume in a temporary folder
  --restart         begin at step 0; checkpoints, model and results in output_dir and
                    mirror_dir are kept under other names
  --stop_at_step N  save and exit with code 75 after step N

keys:
)";

// Whether the words ask for JSON lines: messages before the configuration is read follow them too.
bool asks_for_json(const Arguments& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--progress=json") return true;
    if (arguments[i] == "--progress" && i + 1 < arguments.size() && arguments[i + 1] == "json") {
      return true;
    }
  }
  return false;
}

}  // namespace

int train_command(const Arguments& arguments) {
  log::set_json_lines(asks_for_json(arguments));
  CommandLine line("train", kTrainHelp, keys_help);
  RunOptions options;
  bool is_dry = false;
  // For trainings of the dry run: the file for the accelerator's peak memory.
  std::optional<std::string> peak_file;
  line.flag("--restart", options.restart);
  line.number("--stop_at_step", options.stop_at_step);
  line.flag("--dry_run", is_dry);
  line.value("--write_peak", peak_file);
  if (!line.parse(arguments)) return kExitFinished;
  const ConfigWords words = line.config();
  if (is_dry && (options.restart || options.stop_at_step)) {
    throw Error(ErrorKind::kUsage,
                "--dry_run trains in a temporary folder; leave --restart and --stop_at_step out");
  }
  if (is_dry) return dry_run(words);
  // Errors up to here run no hook, because hooks are known only after the configuration is read.
  const LoadedConfig config = load_long_run(words);
  log::set_json_lines(config.args.progress == "json");
  if (peak_file) {
    options.on_step = [&](int64_t) { write_peak(config.args, *peak_file); };
  }
  const std::string& from = config.args.resume_from_checkpoint;
  if (options.restart && from != "auto" && from != "none") {
    throw Error(ErrorKind::kUsage, "--restart begins at step 0 and resume_from_checkpoint names '" +
                                       from + "': leave one of them out");
  }
  const Supervision supervision{.hooks = {.on_finish = config.args.on_finish_command,
                                          .on_interrupt = config.args.on_interrupt_command,
                                          .on_failure = config.args.on_failure_command},
                                .output_dir = config.args.output_dir};
  // Only rank 0 is supervised: it exits last, when all files are in their final place.
  const bool is_supervised = !supervision.hooks.empty() && launched_beside_first().empty();
  if (!is_supervised) return train(config, options);
  log::set_level(config.args.log_level);
  return supervise(supervision, [&](SharedReport& report) {
    options.on_step = [&report](int64_t step) { report.step = step; };
    options.on_already_finished = [&report] { report.already_finished = true; };
    check_hooks(config);
    return train(config, options);
  });
}

}  // namespace finetune::cli
