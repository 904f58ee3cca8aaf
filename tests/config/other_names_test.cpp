// SPDX-License-Identifier: MIT
#include "config/other_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "config/aliases.h"
#include "finetune/config/fields.h"
#include "load_helpers.h"

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
    EXPECT_THAT(load_error(name + ": 1\n"),
                HasSubstr("unknown key '" + name + "' (did you mean '" + key + "'"));
  }
  EXPECT_EQ(load_error("use_tpu: true\n"),
            "run.yaml:1: unknown key 'use_tpu': libtorch has no TPU device");
}

}  // namespace
}  // namespace finetune
