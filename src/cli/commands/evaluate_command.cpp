// SPDX-License-Identifier: MIT
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/process/command_line.h"
#include "cli/process/commands.h"
#include "cli/process/launch.h"
#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/config/load.h"
#include "finetune/config/validate.h"
#include "finetune/train/run.h"

namespace finetune::cli {
namespace {

constexpr const char* kEvaluateHelp =
    R"(usage: finetune evaluate CONFIG [--key value ...] [--checkpoint auto|base|FOLDER]

Prints the metrics on validation_file as JSON. If output_dir contains a finished run,
its model is evaluated, otherwise model_name_or_path; a line names the model. Only one
process is supported.

  --checkpoint auto    the run's newest valid checkpoint, or the finished model if
                       there is no checkpoint
  --checkpoint base    the model that model_name_or_path names
  --checkpoint FOLDER  the model in this folder
)";

}  // namespace

int evaluate_command(const Arguments& arguments) {
  CommandLine line("evaluate", kEvaluateHelp);
  std::optional<std::string> checkpoint;
  line.value("--checkpoint", checkpoint);
  if (!line.parse(arguments)) return kExitFinished;
  if (!works_here("evaluate")) return kExitFinished;
  ConfigWords words = line.config();
  EvaluatedModel model = EvaluatedModel::kTrained;
  if (checkpoint == "auto") {
    model = EvaluatedModel::kNewest;
  } else if (checkpoint == "base") {
    model = EvaluatedModel::kBase;
  } else if (checkpoint) {
    words.overrides.push_back("--model_name_or_path");
    words.overrides.push_back(*checkpoint);
  }
  const LoadedConfig config = load_long_run(words);
  refuse_several("evaluate", config);
  validate(config, Purpose::kEvaluate);
  log::set_level(config.args.log_level);
  for (const std::string& note : config.notes) log::warning(note);
  std::cout << run_evaluation(config, model).dump(2) << std::endl;
  return kExitFinished;
}

}  // namespace finetune::cli
