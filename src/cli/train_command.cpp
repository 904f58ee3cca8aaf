// SPDX-License-Identifier: MIT
#include <iostream>

#include "cli/commands.h"
#include "cli/config_arguments.h"
#include "finetune/base/error.h"
#include "finetune/config/dump.h"
#include "finetune/config/load.h"
#include "finetune/config/validate.h"
#include "finetune/train/run.h"

namespace finetune::cli {

int train_command(const Arguments& arguments) {
  ArgumentReader reader(arguments);
  if (reader.asks_for_help()) {
    std::cout << "usage: finetune train CONFIG [--key value ...] [--restart] [--stop_at_step N]\n\n"
                 "Trains; run again, goes on from the newest valid checkpoint in output_dir.\n"
                 "SIGTERM, SIGINT and SIGUSR1 save and leave with exit code 75.\n\n"
                 "  --restart         set existing checkpoints aside and begin at step 0\n"
                 "  --stop_at_step N  save and leave with 75 after step N\n\nkeys:\n"
              << keys_help();
    return kExitFinished;
  }
  RunOptions options;
  options.restart = reader.take_flag("--restart");
  options.stop_at_step = reader.take_number("--stop_at_step");
  const ConfigArguments words = reader.config("train");
  const LoadedConfig config = load_config(words.path, words.overrides);
  const bool evaluates_only = !config.args.do_train && config.args.do_eval;
  validate(config, evaluates_only ? Purpose::kEvaluate : Purpose::kTrain);
  return run_training(config, options);
}

}  // namespace finetune::cli
