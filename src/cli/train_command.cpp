// SPDX-License-Identifier: MIT
#include <iostream>
#include <utility>

#include "cli/commands.h"
#include "cli/config_arguments.h"
#include "cli/launch.h"
#include "cli/supervisor.h"
#include "cli/tpu.h"
#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/config/dump.h"
#include "finetune/config/load.h"
#include "finetune/config/validate.h"
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

int train(const LoadedConfig& config, const RunOptions& options) {
  const bool evaluates_only = !config.args.do_train && config.args.do_eval;
  validate(config, evaluates_only ? Purpose::kEvaluate : Purpose::kTrain);
  check_starting_folder(config);
  if (!tpu_note().empty()) log::warning(tpu_note());
  return launch(plan_launch(config), config, [&](std::shared_ptr<World> world) {
    RunOptions own = options;
    own.world = std::move(world);
    return run_training(config, own);
  });
}

}  // namespace

int train_command(const Arguments& arguments) {
  ArgumentReader reader(arguments);
  if (reader.asks_for_help()) {
    std::cout << "usage: finetune train CONFIG [--key value ...] [--restart] [--stop_at_step N]\n\n"
                 "Trains; run again, goes on from the newest valid checkpoint in output_dir.\n"
                 "SIGTERM, SIGINT and SIGUSR1 save and leave with exit code 75. SIGHUP is ignored\n"
                 "(on_sighup: stop saves and leaves too).\n\n"
                 "  --restart         set existing checkpoints aside and begin at step 0\n"
                 "  --stop_at_step N  save and leave with 75 after step N\n\nkeys:\n"
              << keys_help();
    return kExitFinished;
  }
  RunOptions options;
  options.restart = reader.take_flag("--restart");
  options.stop_at_step = reader.take_number("--stop_at_step");
  const ConfigWords words = reader.config("train");
  // What is wrong up to here runs no command: none is known before the configuration is read.
  const LoadedConfig config = load_long_run(words);
  const std::string& from = config.args.resume_from_checkpoint;
  if (options.restart && from != "auto" && from != "none") {
    throw Error(ErrorKind::kUsage, "--restart begins at step 0 and resume_from_checkpoint names '" +
                                       from + "': leave one of them out");
  }
  const Supervision supervision{.hooks = {.on_finish = config.args.on_finish_command,
                                          .on_interrupt = config.args.on_interrupt_command,
                                          .on_failure = config.args.on_failure_command},
                                .output_dir = config.args.output_dir};
  // Rank 0's end is the run's: it leaves last, and its files are then where they belong.
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
