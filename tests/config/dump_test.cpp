// SPDX-License-Identifier: MIT
#include "finetune/config/dump.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "config/reading/values.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/config/exclusions.h"
#include "finetune/config/fields.h"
#include "finetune/config/validate.h"
#include "load_helpers.h"
#include "support/paths.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::load_yaml;
using Json = nlohmann::ordered_json;

// A value of every type; none is a default.
const char* const kRich =
    "output_dir: /run\ntrain_file: ['/a b.txt', \"/c,d\"]\nlearning_rate: 2e-5\n"
    "config_overrides: {hidden_size: 64, hidden_act: gelu}\nsave_total_limit: 2\n"
    "run_name: 'true'\neval_strategy: steps\neval_steps: 0.25\nwarmup_steps: 0.06\n"
    "disable_tqdm: true\ncache_dir: /cache\nlogging_steps: 10\nreport_to: tensorboard\n"
    "metric_for_best_model: \"a: \\\"b\\\" # \\u00e9\"\n";

TEST(Dump, DefaultsLoadToTheDefaults) {
  const LoadedConfig config = load_yaml(defaults_yaml());
  EXPECT_THAT(config.notes, IsEmpty());
  EXPECT_EQ(to_json(config.args), to_json(load_yaml("").args));
}

TEST(Dump, JsonLoadsToTheSame) {
  const Json json = to_json(load_yaml(kRich).args);
  const LoadedConfig again = load_config_text(json.dump(1), "run.json", {});
  EXPECT_EQ(to_json(again.args), json);
  EXPECT_EQ(to_json(again.args).dump(), json.dump());
}

TEST(Dump, JsonHasEveryKeyInOrderAndTypesOfTransformers) {
  const Json json = to_json(TrainingArgs{});
  ASSERT_EQ(json.size(), all_fields().size());
  EXPECT_EQ(json.begin().key(), all_fields().front().name);
  EXPECT_TRUE(json.at("logging_steps").is_number_integer());
  EXPECT_TRUE(json.at("weight_decay").is_number_float());
  EXPECT_TRUE(json.at("eval_steps").is_null());
}

TEST(Dump, ShowsNoSecrets) {
  const LoadedConfig config = load_yaml("hub_token: hf_abc\ntoken: hf_abc\n");
  EXPECT_EQ(value_of(*find_field("token"), config.args), "hf_abc");
  EXPECT_EQ(to_json(config.args).at("hub_token"), "<HUB_TOKEN>");
  EXPECT_THAT(to_json(config.args).dump(), ::testing::Not(HasSubstr("hf_abc")));
}

TEST(Dump, InitialYamlIsInOrder) {
  for (const char* task : {"sequence_classification", "multiple_choice", "token_classification",
                           "question_answering"}) {
    const LoadedConfig labelled = load_yaml(initial_yaml(task));
    EXPECT_EQ(labelled.args.task, task);
    EXPECT_NO_THROW(validate(labelled, Purpose::kTrain)) << task;
  }
  const LoadedConfig config = load_yaml(initial_yaml("mlm"));
  EXPECT_THAT(config.notes, IsEmpty());
  EXPECT_NO_THROW(validate(config, Purpose::kTrain));
  EXPECT_THROW((void)initial_yaml("poetry"), Error);
}

TEST(Dump, SchemaKnowsEveryKey) {
  const Json schema = parse_json(json_schema(), "schema");
  EXPECT_EQ(schema.at("$schema"), "https://json-schema.org/draft/2020-12/schema");
  const Json& properties = schema.at("properties");
  for (const Field& field : all_fields()) {
    ASSERT_TRUE(properties.contains(field.name)) << field.name;
    EXPECT_TRUE(properties.at(field.name).contains("default")) << field.name;
  }
  EXPECT_EQ(properties.at("evaluation_strategy").at("deprecated"), true);
  EXPECT_EQ(schema.at("additionalProperties"), false);
}

TEST(Dump, TablesAndHelpNameEveryKey) {
  const std::string table = describe_keys_markdown();
  const std::string help = keys_help();
  for (const Field& field : all_fields()) {
    EXPECT_THAT(table, HasSubstr("</a>`" + field.name + "` |"));
    EXPECT_THAT(help, HasSubstr("  --" + field.name + " <"));
  }
}

TEST(Dump, ThePageOfAllKeysHoldsTheirTable) {
  const std::string page = FileSystem::local().read_all(source_dir() + "/docs/configuration.md");
  EXPECT_THAT(page,
              HasSubstr("<!-- keys:begin -->\n" + describe_keys_markdown() + "<!-- keys:end -->"))
      << "run scripts/docs --tables";
}

TEST(Dump, ThePageOfAllKeysHoldsTheTableOfExclusions) {
  const std::string page = FileSystem::local().read_all(source_dir() + "/docs/configuration.md");
  EXPECT_THAT(page, HasSubstr("<!-- exclusions:begin -->\n" + describe_exclusions_markdown() +
                              "<!-- exclusions:end -->"))
      << "run scripts/docs --tables";
}

TEST(ChangedKeys, NamesWhatDiffersWithItsPolicy) {
  const Json before = to_json(load_yaml("learning_rate: 5e-5\nseed: 1\n").args);
  const Json after =
      to_json(load_yaml("learning_rate: 1e-5\nseed: 2\noutput_dir: x\nsave_total_limit: 3\n").args);
  const std::vector<KeyChange> changes = changed_keys(before, after);
  ASSERT_EQ(changes.size(), 4U);
  EXPECT_EQ(changes[0].name, "seed");
  EXPECT_EQ(changes[0].policy, ResumePolicy::kFixed);
  EXPECT_EQ(changes[1].name, "learning_rate");
  EXPECT_EQ(changes[1].old_text, "5e-05");
  EXPECT_EQ(changes[1].new_text, "1e-05");
  EXPECT_EQ(changes[1].policy, ResumePolicy::kFreeAnnounced);
  EXPECT_EQ(changes[2].name, "output_dir");
  EXPECT_TRUE(changes[2].is_path);
  EXPECT_EQ(changes[3].old_text, "null");
}

TEST(ChangedKeys, TakesAMissingKeyForItsDefault) {
  const Json present = to_json(load_yaml("").args);
  Json before = present;
  before.erase("seed");
  before.erase("gradient_checkpointing");
  before["from_a_later_version"] = 1;
  EXPECT_THAT(changed_keys(before, present), IsEmpty());
  const std::vector<KeyChange> changes = changed_keys(before, to_json(load_yaml("seed: 5").args));
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].old_text, "42");
}

TEST(ChangedKeys, LeavesToTheRunWhatItDecidesAtItsStart) {
  Json before = to_json(load_yaml("load_in_4bit: true").args);
  const Json left = to_json(load_yaml("load_in_4bit: auto").args);
  EXPECT_THAT(changed_keys(before, left), IsEmpty());
  EXPECT_EQ(changed_keys(before, to_json(load_yaml("").args)).size(), 1U);
  // An earlier version stored a boolean.
  before["load_in_4bit"] = true;
  EXPECT_THAT(changed_keys(before, to_json(load_yaml("load_in_4bit: true").args)), IsEmpty());
  EXPECT_THAT(changed_keys(before, left), IsEmpty());
  EXPECT_EQ(changed_keys(before, to_json(load_yaml("").args)).size(), 1U);
}

TEST(ChangedKeys, TakesNullForTheDefaultOfAKeyThatAlwaysHasAValue) {
  const Json present = to_json(load_yaml("max_steps: 3").args);
  Json before = present;
  before["dtype"] = nullptr;  // an earlier version stored null
  EXPECT_THAT(changed_keys(before, present), IsEmpty());
  before["dtype"] = "bfloat16";
  const std::vector<KeyChange> changes = changed_keys(before, present);
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].name, "dtype");
}

}  // namespace
}  // namespace finetune
