// SPDX-License-Identifier: MIT
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/process/command_line.h"
#include "cli/process/commands.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/config/load.h"
#include "finetune/config/validate.h"
#include "finetune/train/prepare.h"

namespace finetune::cli {
namespace {

constexpr const char* kPrepareHelp =
    R"(usage: finetune prepare CONFIG [--show N] [--rows FILE] [--key value ...]

Tokenises the data files into cache_dir, for later trainings with the same
configuration; needs no GPU. With task pretraining it makes masked examples from the
documents of train_file and writes them as TFRecord shards (num_shards) to
prepare_output_dir, which train_file can then name. After an interruption the same
command makes the missing part. The result is printed as JSON.

  --show N      also print the first N samples of chat data (task sft), with what is
                learned marked
  --rows FILE   also write the training samples of clm or sft to FILE as JSON lines:
                input_ids, labels (-100: not learned), text
)";

}  // namespace

int prepare_command(const Arguments& arguments) {
  CommandLine line("prepare", kPrepareHelp);
  PrepareOutput output;
  line.number("--show", output.show);
  line.value("--rows", output.rows);
  if (!line.parse(arguments)) return kExitFinished;
  const ConfigWords words = line.config();
  const LoadedConfig config = load_long_run(words);
  validate(config, Purpose::kTrain);
  log::set_level(config.args.log_level);
  for (const std::string& note : config.notes) log::warning(note);
  interrupt::install_handlers();
  std::cout << run_prepare(config, output).dump(2) << std::endl;
  return kExitFinished;
}

}  // namespace finetune::cli
