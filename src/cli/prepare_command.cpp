// SPDX-License-Identifier: MIT
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/config_arguments.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/config/load.h"
#include "finetune/config/validate.h"
#include "finetune/train/prepare.h"

namespace finetune::cli {

int prepare_command(const Arguments& arguments) {
  ArgumentReader reader(arguments);
  if (reader.asks_for_help()) {
    std::cout
        << "usage: finetune prepare CONFIG [--key value ...]\n\n"
           "Makes the masked examples of task pretraining from the documents of train_file and\n"
           "writes them as TFRecord shards (num_shards) to prepare_output_dir; train_file then\n"
           "names these. The same command, run again after any interruption, writes what is\n"
           "missing. What was made is printed as JSON.\n";
    return kExitFinished;
  }
  const ConfigArguments words = reader.config("prepare");
  const LoadedConfig config = load_config(words.path, words.overrides);
  validate(config, Purpose::kTrain);
  log::set_level(config.args.log_level);
  for (const std::string& note : config.notes) log::warning(note);
  interrupt::install_handlers();
  std::cout << run_prepare(config).dump(2) << std::endl;
  return kExitFinished;
}

}  // namespace finetune::cli
