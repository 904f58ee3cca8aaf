// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

#include "finetune/config/checkpoint_args.h"
#include "finetune/config/data_args.h"
#include "finetune/config/device_args.h"
#include "finetune/config/logging_args.h"
#include "finetune/config/model_args.h"
#include "finetune/config/optimizer_args.h"
#include "finetune/config/task_args.h"

namespace finetune {

// All keys of a configuration: Hugging Face's TrainingArguments 5.x and the arguments of its
// example scripts with their names and defaults, and this program's keys. A default-constructed
// object has the defaults; load_config fills one from a file and the command line and derives the
// values that follow from other keys (eval_steps, metric_for_best_model, ...).
//
// Each part lists its keys twice: as members, and in describe(), from which loading, command line,
// help, dumps, JSON Schema and README are generated (fields.h). A test fails if the two lists
// differ.
struct TrainingArgs : ModelArgs,
                      DataArgs,
                      TaskArgs,
                      LoaderArgs,
                      DurationArgs,
                      OptimizerArgs,
                      DeviceArgs,
                      DistributedArgs,
                      LoggingArgs,
                      EvaluationArgs,
                      CheckpointArgs,
                      SessionArgs,
                      HubArgs {
  // Calls `field` once for every key, in the order of the base classes.
  static void describe(FieldList& field);

  // Whether report_to contains this value ("tensorboard").
  [[nodiscard]] bool reports_to(std::string_view receiver) const;
};

}  // namespace finetune
