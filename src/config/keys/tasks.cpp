// SPDX-License-Identifier: MIT
#include "finetune/config/tasks.h"

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/base/text.h"

namespace finetune {

// Defined in src/task/<task>/keys.cpp.
const TaskKeys& masked_lm_keys();
const TaskKeys& causal_lm_keys();
const TaskKeys& sft_keys();
const TaskKeys& pretraining_keys();
const TaskKeys& sequence_classification_keys();
const TaskKeys& multiple_choice_keys();
const TaskKeys& token_classification_keys();
const TaskKeys& question_answering_keys();
const TaskKeys& embedding_keys();
const TaskKeys& reranker_keys();
const TaskKeys& reward_keys();
const TaskKeys& decision_keys();
const TaskKeys& dpo_keys();
const TaskKeys& orpo_keys();
const TaskKeys& kto_keys();

namespace {

constexpr std::string_view kFreshModel = R"(
# A new model. Train its tokenizer once, beforehand:
#   finetune tokenizer train --type byte_level_bpe --vocab_size 8000 --output tokenizer train.txt
model_type: {}
tokenizer_name: ./tokenizer
config_overrides: {{hidden_size: 256, num_hidden_layers: 4, num_attention_heads: 4, intermediate_size: 1024}}
# To fine-tune a trained model instead, replace these three keys by:
# model_name_or_path: ./my-model
)";

std::vector<const TaskKeys*>& task_key_table() {
  static std::vector<const TaskKeys*> table = {&masked_lm_keys(),
                                               &causal_lm_keys(),
                                               &sft_keys(),
                                               &pretraining_keys(),
                                               &sequence_classification_keys(),
                                               &multiple_choice_keys(),
                                               &token_classification_keys(),
                                               &question_answering_keys(),
                                               &embedding_keys(),
                                               &reranker_keys(),
                                               &reward_keys(),
                                               &decision_keys(),
                                               &dpo_keys(),
                                               &orpo_keys(),
                                               &kto_keys()};
  return table;
}

}  // namespace

const std::vector<const TaskKeys*>& all_task_keys() { return task_key_table(); }

const TaskKeys& task_keys(std::string_view task) {
  const auto found = std::ranges::find(all_task_keys(), task, &TaskKeys::name);
  FT_CHECK(found != all_task_keys().end(), "there is no task '" + std::string(task) + "'");
  return **found;
}

std::string with_fresh_model(std::string_view data, std::string_view model_type) {
  const TextArgument arguments[] = {model_type};
  return std::string(data) + fill_format(kFreshModel, arguments);
}

bool has_key(const TaskKeys& task, std::string_view key) {
  return std::ranges::find(task.keys, key) != task.keys.end();
}

void add_task_keys(const TaskKeys& task) { task_key_table().push_back(&task); }

}  // namespace finetune
