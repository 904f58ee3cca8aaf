// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "finetune/config/tasks.h"
#include "finetune/data/columns.h"
#include "finetune/data/data_record.h"
#include "finetune/model/model.h"

namespace finetune {

class Predictor;
class TaskSetup;
struct PredictOptions;
struct SetupContext;

// How `finetune predict` answers with a model of a task.
struct Pipeline {
  std::string_view name;                       // transformers' pipeline: "fill-mask"
  std::vector<std::string_view> aliases = {};  // alternative names
  std::string_view class_suffix;       // ending of the architecture in config.json: "ForMaskedLM"
  std::string_view other_suffix = {};  // another one that single families have; empty: none
  // Throws Error(kConfig | kData) where the folder has no usable model of the task and tokenizer,
  // Error(kUsage) for an option's value.
  std::unique_ptr<Predictor> (*make_predictor)(const std::string& folder,
                                               const PredictOptions& options);
};

// All that the program asks of a task: its entry in the table of tasks (src/task/tasks.cpp). How to
// add one: docs/extending.md.
struct TaskDescriptor {
  const TaskKeys& keys;  // name, help, the keys that it takes
  RowTask rows;          // what its rows contain: which columns are looked for
  // The head that learns; nothing: the head of masked words alone.
  std::optional<Head> (*head)(const TrainingArgs& args);
  std::unique_ptr<TaskSetup> (*make_setup)(const SetupContext& context);
  Pipeline pipeline;

  // Targets are words: labels are shown as tokens, and of logits over the vocabulary ranks exchange
  // the most probable word only.
  bool learns_words = false;
  bool learns_next_words = false;      // the label of a token is the next token
  bool pads = true;                    // samples of unequal length need the tokenizer's pad token
  bool logs_tokens = false;            // the log has the number of tokens trained on
  bool reports_perplexity = false;     // exp(eval_loss)
  std::string_view sample = "sample";  // what messages call one: "question"
  // How the class of a sample is shown; unset: the label's name.
  std::string (*class_text)(int64_t label) = nullptr;
};

// In the order of all_task_keys().
[[nodiscard]] const std::vector<const TaskDescriptor*>& all_tasks();

// By the value of the key 'task'; nullptr: unknown.
[[nodiscard]] const TaskDescriptor* find_task(std::string_view name);

// The task of a configuration, which has one.
[[nodiscard]] const TaskDescriptor& task_of(const TrainingArgs& args);

// Adds a task that this program does not come with, and its keys; see add_task_keys().
void add_task(const TaskDescriptor& task);

// The record of the model in `folder` where it was trained on such rows; else an empty one. Throws
// Error(kData) for a damaged one.
[[nodiscard]] DataRecord trained_record(const std::string& folder, RowTask rows);

}  // namespace finetune
