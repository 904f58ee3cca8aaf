// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "finetune/config/training_args.h"

namespace finetune {

// The facts of a task that need no model: what the configuration checks, explains and lists. Each
// task writes its own in src/task/<task>/keys.cpp, which is compiled into this area, without torch.
// The rest of a task is its TaskDescriptor (finetune/task/tasks.h).
struct TaskKeys {
  std::string_view name;   // value of the key 'task'
  std::string_view title;  // what a run of it does; first line of `finetune config init`
  // The part of `finetune config init` that is the task's: data, and what a fresh model needs.
  std::string_view yaml;
  bool trains_from_scratch = false;  // `finetune config init` offers no model_name_or_path

  // Of the keys that not every task has, those that this one has. A key that a task names is an
  // error in every task that does not.
  std::vector<std::string_view> keys;

  // Every metric that its evaluation may report in addition to the loss; the first is the one of
  // transformers' script. Metrics of entity types ("PER_f1") are not listed.
  std::vector<std::string_view> metric_names;
  // False: all of metric_names are reported, so another metric_for_best_model is refused at once.
  bool metrics_depend_on_data = true;

  bool splits_train_file = false;  // without validation_file, a share of train_file is held out
  bool row_is_sample = true;  // each row of a file is one sample, so that files can be streamed
  bool samples_fill_length = false;  // examples are as long as max_seq_length; none to group
  // Whether the targets are classes, which can be smoothed. Unset: always.
  bool (*learns_classes)(const TrainingArgs& args) = nullptr;
};

// TaskKeys::yaml of a task that trains from scratch: `data`, and the keys of a fresh model.
// `model_type`: the value and the comment after it. The result must outlive the task.
[[nodiscard]] std::string with_fresh_model(std::string_view data, std::string_view model_type);

// All tasks, in the order in which help, schema and messages list them.
[[nodiscard]] const std::vector<const TaskKeys*>& all_task_keys();

// Requires: `task` is the name of one.
[[nodiscard]] const TaskKeys& task_keys(std::string_view task);

[[nodiscard]] bool has_key(const TaskKeys& task, std::string_view key);

// Adds a task that this program does not come with. Call it before the configuration is first
// used (before main(), or first in it), from one thread; `task` must outlive the process.
void add_task_keys(const TaskKeys& task);

}  // namespace finetune
