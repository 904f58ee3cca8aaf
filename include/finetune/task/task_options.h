// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "finetune/config/chat_args.h"
#include "finetune/config/data_args.h"
#include "finetune/config/embedding_args.h"
#include "finetune/config/key_locations.h"
#include "finetune/config/preference_args.h"
#include "finetune/config/task_args.h"

namespace finetune {

// What a task reads of the configuration, with the keys' names. make_task_options() in train/setup
// fills it.
struct TaskOptions : DataArgs, LoaderArgs, TaskArgs, ChatArgs, EmbeddingArgs, PreferenceArgs {
  std::string task = {};
  bool do_eval = false;
  int64_t seed = 42;
  std::optional<int64_t> data_seed = {};
  double label_smoothing_factor = 0.0;
  KeyLocations locations = {};
};

}  // namespace finetune
