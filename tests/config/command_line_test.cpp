// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "finetune/config/load.h"
#include "load_helpers.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using testing::load_error;

TEST(ConfigWords, FindTheFileAnywhere) {
  const auto path_of = [](const std::vector<std::string>& words) {
    return split_config_words(words).path;
  };
  EXPECT_EQ(path_of({"a.yaml", "--seed", "1"}), "a.yaml");
  EXPECT_EQ(path_of({"--seed", "1", "a.yaml"}), "a.yaml");
  EXPECT_EQ(path_of({"--do_train", "a.yaml", "--seed=1"}), "a.yaml");
  EXPECT_EQ(path_of({"--do_train", "false", "a.json"}), "a.json");
  EXPECT_EQ(path_of({"--no_do_eval", "a.yml"}), "a.yml");
  EXPECT_EQ(path_of({"--overwrite_output_dir", "a.yaml"}), "a.yaml");
  EXPECT_EQ(path_of({"--train_file", "a.txt", "b.txt", "a.yaml"}), "a.yaml");
  EXPECT_EQ(path_of({"--train_file", "a.txt", "b.json"}), "");
  EXPECT_EQ(path_of({"--seed", "1"}), "");
  EXPECT_EQ(path_of({"a.yaml", "--output_dir", "b.yaml"}), "a.yaml");
  EXPECT_THAT(split_config_words({"--do_train", "a.yaml", "--seed", "1", "rest"}).overrides,
              ElementsAre("--do_train", "--seed", "1", "rest"));
  EXPECT_GOLDEN(load_error("", "run.yaml", {"--fp16", "maybe"}));
}

TEST(JsonConfiguration, NamesLineColumnAndWhatWasFound) {
  const auto error_of = [](const std::string& text) { return load_error(text, "run.json"); };
  EXPECT_GOLDEN(error_of("{\n  \"max_steps\": 4,\n}\n"));
  EXPECT_GOLDEN(error_of("{\n \"seed\": 1, // why\n}"));
  EXPECT_GOLDEN(error_of("{'a': 1}"));
}

TEST(ReportTo, IsNoneOrATracker) {
  EXPECT_GOLDEN(load_error("", "run.yaml", {"--report_to", "none", "tensorboard"}));
  EXPECT_EQ(load_error("", "run.yaml", {"--report_to", "tensorboard"}), "");
}

TEST(CommandLineList, IsJsonOrYamlInOneLine) {
  for (const char* text : {"[\"sudo\", \"poweroff\"]", "[sudo, poweroff]"}) {
    const LoadedConfig config = load_config("", {"--on_finish_command", text});
    EXPECT_THAT(config.args.on_finish_command, ElementsAre("sudo", "poweroff"));
  }
}

}  // namespace
}  // namespace finetune
