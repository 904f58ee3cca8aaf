// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "finetune/config/task_args.h"

namespace finetune {

// The properties of a task that need no model, for checking, documenting and listing keys. Each
// task defines them in src/task/<task>/keys.cpp, which is compiled into this area, without torch.
// The other properties are in its TaskDescriptor (finetune/task/tasks.h).
struct TaskKeys {
  std::string_view name;   // value of the key 'task'
  std::string_view title;  // first line of `finetune config init`: what a run of the task does
  // The part of `finetune config init` that depends on the task: data, and keys of a new model.
  std::string_view yaml;
  bool trains_from_scratch = false;  // `finetune config init` offers no model_name_or_path

  // The keys, among those that not every task has, that this task has. A key listed by any task is
  // an error in tasks that do not list it.
  std::vector<std::string_view> keys;

  // Every metric that evaluation may report in addition to the loss; the first is the default of
  // transformers' script. Metrics of entity types ("PER_f1") are not listed.
  std::vector<std::string_view> metric_names;
  // False: exactly metric_names are reported, so any other metric_for_best_model is an error at
  // once.
  bool metrics_depend_on_data = true;

  std::optional<double> learning_rate = {};  // unset: the key's default
  bool splits_train_file = false;  // without validation_file, a share of train_file is held out
  bool row_is_sample = true;       // each row of a file is one sample, so files can be streamed
  // Samples have max_seq_length tokens: grouping by length is useless.
  bool samples_fill_length = false;
  // Whether the targets are classes, so that label smoothing applies. Unset: always.
  bool (*learns_classes)(const TaskArgs& args) = nullptr;
};

// Returns TaskKeys::yaml of a task that trains from scratch: `data`, and the keys of a new model.
// `model_type`: the value followed by a comment. The result must outlive the task.
[[nodiscard]] std::string with_fresh_model(std::string_view data, std::string_view model_type);

// Returns all tasks, in the order in which help, schema and messages list them.
[[nodiscard]] const std::vector<const TaskKeys*>& all_task_keys();

// Requires: a task of this name exists.
[[nodiscard]] const TaskKeys& task_keys(std::string_view task);

[[nodiscard]] bool has_key(const TaskKeys& task, std::string_view key);

// Registers a task that is not built in. Call it before the configuration is first used (before
// main(), or first in it), from one thread; `task` must outlive the process.
void add_task_keys(const TaskKeys& task);

}  // namespace finetune
