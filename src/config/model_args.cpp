// SPDX-License-Identifier: MIT
#include "finetune/config/model_args.h"

#include "config/reasons.h"
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
        "Kind of a fresh model, instead of model_name_or_path.",
        {.choices = model_family_names(), .resume = ResumePolicy::kFixed});
  field("config_overrides", &ModelArgs::config_overrides,
        "Entries of a fresh model's config.json, as a mapping or as \"k=v,k=v\".",
        {.resume = ResumePolicy::kFixed});
  field(
      "config_name", &ModelArgs::config_name,
      "Folder whose config.json the model is built from, or its name in the cache; the weights are "
      "those of model_name_or_path, or fresh without it.",
      {.resume = ResumePolicy::kFixed, .path = PathKind::kPathOrName});
  field("ignore_mismatched_sizes", &ModelArgs::ignore_mismatched_sizes,
        "Start tensors fresh that have another shape in the file, instead of failing.");
  field("tokenizer_name", &ModelArgs::tokenizer_name,
        "Folder of the tokenizer or its name in the cache; unset takes the model's.",
        {.resume = ResumePolicy::kFixed, .path = PathKind::kPathOrName});
  field("use_fast_tokenizer", &ModelArgs::use_fast_tokenizer, "Take the fast tokenizer.",
        {.support = Support::kAccepted, .reason = "there is one tokenizer, and it is fast"});
  field("model_revision", &ModelArgs::model_revision,
        "Branch, tag or commit of a model that is named rather than given as a folder.",
        {.support = Support::kRefused, .reason = kNotYet, .resume = ResumePolicy::kFixed});
  field("token", &ModelArgs::token, "Access token for the Hugging Face Hub.",
        {.support = Support::kAccepted,
         .reason = "nothing is fetched from the Hub by this program",
         .resume = ResumePolicy::kFree,
         .secret = true});
  field("trust_remote_code", &ModelArgs::trust_remote_code,
        "Run Python code that comes with a model.",
        {.support = Support::kRefused, .reason = "is not possible: no Python is ever run"});
  field("dtype", &ModelArgs::dtype, "Number format that the weights are loaded in.",
        {.choices = {"auto", "float32", "bfloat16", "float16"},
         .available = {"float32"},
         .reason = kNotYet});
  field("low_cpu_mem_usage", &ModelArgs::low_cpu_mem_usage,
        "Load weights without a second copy in memory.",
        {.support = Support::kAccepted, .reason = "loading never makes a second copy"});
  field("use_cache", &ModelArgs::use_cache, "Keep keys and values for generating text.",
        {.support = Support::kAccepted, .reason = "an encoder has no such cache"});
  // Free, because its result is part of the model, which a resume compares: "none" equals the unset
  // key of an earlier run.
  field("bigbird_compat", &ModelArgs::bigbird_compat,
        "Take BigBird's random blocks as transformers does in evaluation, where each is block 0 "
        "once more, and drop no attention probabilities; in training they are drawn here too, "
        "but not by numpy.",
        {.choices = {"none", "huggingface"}, .resume = ResumePolicy::kFree});
}

}  // namespace finetune
