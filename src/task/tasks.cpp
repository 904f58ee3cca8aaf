// SPDX-License-Identifier: MIT
#include "finetune/task/tasks.h"

#include <algorithm>

#include "finetune/base/error.h"

namespace finetune {

// Each is defined in the task's folder.
const TaskDescriptor& masked_lm_descriptor();
const TaskDescriptor& causal_lm_descriptor();
const TaskDescriptor& sft_descriptor();
const TaskDescriptor& pretraining_descriptor();
const TaskDescriptor& sequence_classification_descriptor();
const TaskDescriptor& multiple_choice_descriptor();
const TaskDescriptor& token_classification_descriptor();
const TaskDescriptor& question_answering_descriptor();
const TaskDescriptor& embedding_descriptor();
const TaskDescriptor& reranker_descriptor();
const TaskDescriptor& reward_descriptor();
const TaskDescriptor& decision_descriptor();
const TaskDescriptor& dpo_descriptor();
const TaskDescriptor& orpo_descriptor();
const TaskDescriptor& kto_descriptor();

namespace {

std::vector<const TaskDescriptor*>& task_table() {
  static std::vector<const TaskDescriptor*> table = {&masked_lm_descriptor(),
                                                     &causal_lm_descriptor(),
                                                     &sft_descriptor(),
                                                     &pretraining_descriptor(),
                                                     &sequence_classification_descriptor(),
                                                     &multiple_choice_descriptor(),
                                                     &token_classification_descriptor(),
                                                     &question_answering_descriptor(),
                                                     &embedding_descriptor(),
                                                     &reranker_descriptor(),
                                                     &reward_descriptor(),
                                                     &decision_descriptor(),
                                                     &dpo_descriptor(),
                                                     &orpo_descriptor(),
                                                     &kto_descriptor()};
  return table;
}

}  // namespace

const std::vector<const TaskDescriptor*>& all_tasks() { return task_table(); }

const TaskDescriptor* find_task(std::string_view name) {
  for (const TaskDescriptor* task : all_tasks()) {
    if (task->keys.name == name) return task;
  }
  return nullptr;
}

void add_differences(const std::vector<MeasureDifference>& differences, MeasureMeans& means) {
  const auto mean = [&](const std::string& name) {
    const auto found = std::ranges::find(means, name, &MeasureMeans::value_type::first);
    FT_CHECK(found != means.end(), "a difference is of measures: " + name);
    return found->second;
  };
  for (const MeasureDifference& one : differences) {
    means.emplace_back(one.name, mean(one.first) - mean(one.second));
  }
}

Tensor Task::first_pass(const Batch& /*batch*/, const TrainingPass& /*pass*/) {
  FT_CHECK(false, "a task with one pass");
}

void Task::couple(const Tensor& /*results*/) { FT_CHECK(false, "a task with one pass"); }

Tensor Task::reference(const Batch& /*batch*/, bool /*without_adapter*/) {
  FT_CHECK(false, "a task without a reference");
}

std::string library_call(const PythonLibrary& library, const std::string& folder, bool is_adapter) {
  const std::string quoted = "\"" + folder + "\"";
  std::string call = std::string(library.callable) + "(" + std::string(library.arguments) + quoted;
  if (is_adapter && !library.adapter_argument.empty()) {
    call += ", " + std::string(library.adapter_argument) + quoted;
  }
  return call + ")";
}

const TaskDescriptor& task_of(std::string_view name) {
  const TaskDescriptor* task = find_task(name);
  FT_CHECK(task != nullptr,
           "a task that the configuration lets through is in no table: " + std::string(name));
  return *task;
}

void add_task(const TaskDescriptor& task) {
  add_task_keys(task.keys);
  task_table().push_back(&task);
}

DataRecord trained_record(const std::string& folder, RowTask rows) {
  const std::optional<DataRecord> record = read_data_record(folder);
  const TaskDescriptor* task = record ? find_task(record->task) : nullptr;
  return task != nullptr && task->rows == rows ? *record : DataRecord{};
}

}  // namespace finetune
