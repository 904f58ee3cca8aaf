// SPDX-License-Identifier: MIT
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/config/load.h"
#include "finetune/config/validate.h"
#include "finetune/train/prepare.h"

namespace finetune::cli {
namespace {

constexpr const char* kPrepareHelp =
    R"(usage: finetune prepare CONFIG [--key value ...]

Tokenises the data files into cache_dir, where trainings of the same configuration find
them; needs no GPU. With task pretraining it makes the masked examples from the
documents of train_file and writes them as TFRecord shards (num_shards) to
prepare_output_dir; train_file then names these. The same command, run again after any
interruption, makes what is missing. What was made is printed as JSON.
)";

}  // namespace

int prepare_command(const Arguments& arguments) {
  CommandLine line("prepare", kPrepareHelp);
  if (!line.parse(arguments)) return kExitFinished;
  const ConfigWords words = line.config();
  const LoadedConfig config = load_long_run(words);
  validate(config, Purpose::kTrain);
  log::set_level(config.args.log_level);
  for (const std::string& note : config.notes) log::warning(note);
  interrupt::install_handlers();
  std::cout << run_prepare(config).dump(2) << std::endl;
  return kExitFinished;
}

}  // namespace finetune::cli
