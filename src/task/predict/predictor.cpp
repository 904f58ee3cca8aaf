// SPDX-License-Identifier: MIT
#include "finetune/task/predictor.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/model_files.h"
#include "finetune/base/nearest.h"
#include "finetune/model/adapter.h"
#include "finetune/model/model_folder.h"
#include "finetune/task/tasks.h"

namespace finetune {
namespace {

// Returns "; name the task with --task fill-mask, ... or question-answering".
std::string name_the_task() {
  std::vector<std::string_view> names;
  for (const TaskDescriptor* task : all_tasks()) {
    const std::string_view name = task->pipeline.name;
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  std::string text = "; name the task with --task ";
  for (size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 < names.size() ? ", " : " or ") + std::string(names[i]);
  }
  return text;
}

// Returns the task that a class of transformers is for, such as "BertForTokenClassification"; null:
// none.
const TaskDescriptor* task_of_class(const std::string& architecture) {
  for (const TaskDescriptor* task : all_tasks()) {
    const auto& [suffix, other] =
        std::pair(task->pipeline.class_suffix, task->pipeline.other_suffix);
    if (architecture.ends_with(suffix)) return task;
    if (!other.empty() && architecture.ends_with(other)) return task;
  }
  return nullptr;
}

bool is_named(const TaskDescriptor& task, std::string_view name) {
  const auto& aliases = task.pipeline.aliases;
  return task.pipeline.name == name || task.keys.name == name ||
         std::ranges::find(aliases, name) != aliases.end();
}

}  // namespace

const TaskDescriptor& parse_predict_task(const std::string& name) {
  std::vector<std::string> known;
  for (const TaskDescriptor* task : all_tasks()) {
    if (is_named(*task, name)) return *task;
    known.emplace_back(task->pipeline.name);
    known.emplace_back(task->keys.name);
    known.insert(known.end(), task->pipeline.aliases.begin(), task->pipeline.aliases.end());
  }
  throw Error(ErrorKind::kUsage, "--task: there is no task '" + name + "'" +
                                     did_you_mean(name, known) + name_the_task());
}

const TaskDescriptor& find_predict_task(const std::string& folder) {
  const std::string model = resolve_model_folder(folder, "MODEL_DIR");
  for (const char* name : {kDecisionFile, kLayaFile}) {
    if (FileSystem::local().exists(join_path(model, name))) return task_of("decision");
  }
  const std::string adapted = adapter_architecture(model);
  if (const TaskDescriptor* task = task_of_class(adapted)) return *task;
  const std::string path = join_path(config_folder(model), kConfigFile);
  if (!FileSystem::local().exists(path)) {
    throw Error(ErrorKind::kUsage, "'" + model +
                                       "' holds a tokenizer only, no model (config.json "
                                       "is missing); name a folder that save_pretrained "
                                       "or a run wrote");
  }
  const nlohmann::ordered_json config = read_json_file(path);
  const auto found = config.is_object() ? config.find("architectures") : config.end();
  if (found == config.end() || !found->is_array() || found->empty() || !(*found)[0].is_string()) {
    throw Error(ErrorKind::kData, path + ": architectures names no class" + name_the_task());
  }
  const auto& architecture = (*found)[0].get_ref<const std::string&>();
  const TaskDescriptor* of_class = task_of_class(architecture);
  // Of a model of images and text, its language model answers.
  if (of_class == nullptr && has_other_parts(config)) of_class = find_task("clm");
  // Several tasks may train one class: the record names the one that did. Those of one pipeline
  // answer alike.
  const std::optional<DataRecord> record = read_data_record(model);
  const TaskDescriptor* trained = record ? find_task(record->task) : nullptr;
  const bool is_other = trained != nullptr && of_class != nullptr &&
                        architecture.ends_with(trained->pipeline.class_suffix) &&
                        trained->pipeline.name != of_class->pipeline.name;
  if (is_other) return *trained;
  if (of_class != nullptr) return *of_class;
  throw Error(ErrorKind::kData, path + ": architectures: '" + architecture.substr(0, 80) +
                                    "' is no architecture that predict supports" + name_the_task());
}

}  // namespace finetune
