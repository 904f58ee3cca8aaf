// SPDX-License-Identifier: MIT
#include "config/reading/other_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "config/reading/aliases.h"
#include "finetune/config/dump.h"
#include "finetune/config/fields.h"
#include "load_helpers.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;
using testing::load_error;

TEST(OtherNames, AreNoKeysAndLeadToKeys) {
  std::set<std::string_view> seen;
  for (const OtherName& other : all_other_names()) {
    EXPECT_TRUE(seen.insert(other.name).second) << other.name << " is there twice";
    EXPECT_EQ(find_field(other.name), nullptr) << other.name;
    const Alias* alias = find_alias(other.name);
    EXPECT_TRUE(alias == nullptr || !alias->task.empty()) << other.name;
    EXPECT_FALSE(other.keys.empty() && other.reason.empty()) << other.name;
    for (const std::string_view key : other.keys) EXPECT_NE(find_field(key), nullptr) << key;
  }
}

// Names of transformers' pipelines and example scripts, and of other trainers.
TEST(OtherValues, AreAnsweredWithTheValueOrTheReason) {
  const std::vector<std::array<std::string, 3>> expected = {
      {"task", "text-classification", " (did you mean 'sequence_classification'?)"},
      {"task", "glue", " (did you mean 'sequence_classification'?)"},
      {"task", "regression", " (did you mean 'sequence_classification'?)"},
      {"task", "ner", " (did you mean 'token_classification'?)"},
      {"task", "token-classification", " (did you mean 'token_classification'?)"},
      {"task", "qa", " (did you mean 'question_answering'?)"},
      {"task", "swag", " (did you mean 'multiple_choice'?)"},
      {"task", "Causal_LM", " (did you mean 'clm'?)"},
      {"task", "fill-mask", " (did you mean 'mlm'?)"},
      {"task", "instruct", " (did you mean 'sft'?)"},
      {"task", "summarization", "; encoder-decoder models are not available"},
      {"lr_scheduler_type", "cos", " (did you mean 'cosine'?)"},
      {"optim", "adam", " (did you mean 'adamw_torch'?)"},
      {"model_type", "GPT2", " (did you mean 'gpt2'?)"},
      {"model_type", "albert", "; ALBERT is not available"}};
  for (const auto& [key, value, answer] : expected) {
    EXPECT_THAT(load_error(key + ": " + value + "\n"), HasSubstr(", not '" + value + "'" + answer));
  }
}

TEST(OtherValues, AutoIsTheDefault) {
  for (const char* key : {"bf16", "fp16"}) {
    EXPECT_EQ(load_error(std::string(key) + ": auto\n"), "") << key;
  }
  for (const char* key : {"dtype", "torch_dtype"}) {
    EXPECT_EQ(load_error(std::string(key) + ": auto\n"), "") << key;
    EXPECT_EQ(load_error(std::string(key) + ": bfloat16\n"), "") << key;
    EXPECT_THAT(load_error(std::string(key) + ": int8\n"), HasSubstr("auto"));
  }
}

TEST(OtherNames, AreAnsweredWithTheKeyOrTheReason) {
  const std::pair<std::string, std::string> expected[] = {
      {"lr", "learning_rate"},
      {"epochs", "num_train_epochs"},
      {"num_epochs", "num_train_epochs"},
      {"batch_size", "per_device_train_batch_size"},
      {"train_batch_size", "per_device_train_batch_size"},
      {"micro_batch_size", "per_device_train_batch_size"},
      {"max_length", "max_seq_length"},
      {"max_len", "max_seq_length"},
      {"max_seq_len", "max_seq_length"},
      {"max_encoder_length", "max_seq_length"},
      {"sequence_len", "max_seq_length"},
      {"cutoff_len", "max_seq_length"},
      {"model", "model_name_or_path"},
      {"model_name", "model_name_or_path"},
      {"base_model", "model_name_or_path"},
      {"tokenizer", "tokenizer_name"},
      {"output", "output_dir"},
      {"wandb", "report_to"},
      {"patience", "early_stopping_patience"},
      {"resume", "resume_from_checkpoint"},
      {"num_train_steps", "max_steps"},
      {"save_checkpoints_steps", "save_steps"}};
  for (const auto& [name, key] : expected) {
    EXPECT_GOLDEN(load_error(name + ": 1\n"));
  }
  EXPECT_GOLDEN(load_error("use_tpu: true\n"));
}

// As scripts write them that print TrainingArguments.
TEST(OtherValues, MembersOfEnumerationsAreTheirValues) {
  const std::array<std::array<std::string, 3>, 6> expected = {
      {{"optim", "OptimizerNames.ADAMW_TORCH", "adamw_torch"},
       {"optim", "OptimizerNames.ADAMW_BNB", "adamw_bnb_8bit"},
       {"save_strategy", "SaveStrategy.STEPS", "steps"},
       {"eval_strategy", "<IntervalStrategy.STEPS: 'steps'>", "steps"},
       {"lr_scheduler_type", "SchedulerType.REDUCE_ON_PLATEAU", "reduce_lr_on_plateau"},
       {"hub_strategy", "HubStrategy.EVERY_SAVE", "every_save"}}};
  for (const auto& [key, written, value] : expected) {
    const LoadedConfig config = testing::load_yaml(key + ": \"" + written + "\"\n");
    EXPECT_EQ(to_json(config.args).at(key), value) << written;
  }
  EXPECT_GOLDEN(load_error("save_strategy: IntervalStrategy.NEVER\n"));
}

TEST(OtherValues, HaveTheirNearestValueOrAnAdvice) {
  EXPECT_GOLDEN(load_error("dtype: bf16\n"));
  EXPECT_GOLDEN(load_error("export_gguf: Q4_K_M\n"));
  EXPECT_GOLDEN(load_error("gradient_checkpointing: unsloth\n"));
  EXPECT_GOLDEN(load_error("adapter: qlora\n"));
}

TEST(OtherValues, NamesOfModulesWithCommasAreToBeAList) {
  EXPECT_GOLDEN(load_error("lora_target_modules: q_proj,v_proj\n"));
  EXPECT_GOLDEN(load_error("", "run.yaml", {"--lora_target_modules", "q_proj,v_proj"}));
  EXPECT_EQ(load_error("use_peft: true\nlora_target_modules: '.*[qv]_proj{1,2}'\n"), "");
}

}  // namespace
}  // namespace finetune
