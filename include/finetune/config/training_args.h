// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "finetune/config/adapter_args.h"
#include "finetune/config/chat_args.h"
#include "finetune/config/checkpoint_args.h"
#include "finetune/config/data_args.h"
#include "finetune/config/device_args.h"
#include "finetune/config/embedding_args.h"
#include "finetune/config/logging_args.h"
#include "finetune/config/model_args.h"
#include "finetune/config/optimizer_args.h"
#include "finetune/config/preference_args.h"
#include "finetune/config/task_args.h"

namespace finetune {

// The value of a key that nothing here reads: one of transformers' that is accepted without effect
// or refused (src/config/reading/foreign_keys.cpp).
using ForeignValue = std::variant<bool, std::string, std::optional<bool>, std::optional<int64_t>,
                                  std::optional<double>, std::optional<std::string>,
                                  std::vector<std::string>, JsonText>;

// All keys of a configuration: Hugging Face's TrainingArguments 5.x and the arguments of its
// example scripts with their names and defaults, and this program's keys. A default-constructed
// object has the defaults; load_config fills one from a file and the command line and derives the
// values that follow from other keys (eval_steps, metric_for_best_model, ...).
//
// Each part names its members twice: as a member, and in describe(), the one list that loading,
// command line, help, dumps, JSON Schema and README are generated from (fields.h). A test fails
// when one of the two is forgotten. Keys that nothing reads have no member.
struct TrainingArgs : ModelArgs,
                      AdapterArgs,
                      DataArgs,
                      TaskArgs,
                      ChatArgs,
                      EmbeddingArgs,
                      PreferenceArgs,
                      LoaderArgs,
                      DurationArgs,
                      OptimizerArgs,
                      DeviceArgs,
                      DistributedArgs,
                      LoggingArgs,
                      EvaluationArgs,
                      CheckpointArgs,
                      SessionArgs {
  std::map<std::string, ForeignValue, std::less<>> foreign;  // those that were set

  // Calls `field` once for every key with a member, in the order of the parts above.
  static void describe(FieldList& field);

  // Whether report_to contains this value ("tensorboard").
  [[nodiscard]] bool reports_to(std::string_view receiver) const;
};

}  // namespace finetune
