// SPDX-License-Identifier: MIT
#include "finetune/config/model_args.h"

#include "finetune/base/model_families.h"
#include "finetune/config/fields.h"
#include "finetune/config/tasks.h"

namespace finetune {
namespace {

std::vector<std::string> task_names() {
  std::vector<std::string> names;
  for (const TaskKeys* task : all_task_keys()) names.emplace_back(task->name);
  return names;
}

}  // namespace

void ModelArgs::describe(FieldList& field) {
  field.section("Model and task");
  field("task", &ModelArgs::task, "The task to train.",
        {.choices = task_names(), .resume = ResumePolicy::kFixed});
  field("model_name_or_path", &ModelArgs::model_name_or_path,
        "Folder of the model to start from, or its name in the local Hugging Face cache.",
        {.resume = ResumePolicy::kFixed, .path = PathKind::kPathOrName});
  field("model_type", &ModelArgs::model_type,
        "Family of a new model, instead of model_name_or_path.",
        {.choices = model_family_names(), .resume = ResumePolicy::kFixed});
  field("config_overrides", &ModelArgs::config_overrides,
        "Fields of a new model's config.json, as a mapping or as \"k=v,k=v\"; on the command line "
        "they "
        "replace the whole mapping of the file.",
        {.resume = ResumePolicy::kFixed});
  field("config_name", &ModelArgs::config_name,
        "Folder of the config.json that the model is built from, or its name in the local Hugging "
        "Face cache; the weights are those of model_name_or_path, or random without it.",
        {.resume = ResumePolicy::kFixed, .path = PathKind::kPathOrName});
  field("ignore_mismatched_sizes", &ModelArgs::ignore_mismatched_sizes,
        "Draw tensors at random whose shape in the file differs from the model's, instead of "
        "failing.");
  field("tokenizer_name", &ModelArgs::tokenizer_name,
        "Folder of the tokenizer, or its name in the local Hugging Face cache; unset: the "
        "tokenizer in the model's folder.",
        {.resume = ResumePolicy::kFixed, .path = PathKind::kPathOrName});
  // The value is part of the model, which a resume compares. 'none' therefore equals an unset key.
  field("bigbird_compat", &ModelArgs::bigbird_compat,
        "Evaluate BigBird as transformers does: every random block is block 0, and attention "
        "probabilities are not dropped. Training draws random blocks either way, but not with "
        "numpy's generator.",
        {.choices = {"none", "huggingface"}, .resume = ResumePolicy::kFree});
  field("freeze", &ModelArgs::freeze,
        "Parameters that are not trained, by name: a module (embeddings, encoder.layer.0), the end "
        "of a name (LayerNorm.weight), or a regular expression for either (layer.[0-5]).",
        {.resume = ResumePolicy::kFixed});
}

}  // namespace finetune
