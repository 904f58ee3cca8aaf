// SPDX-License-Identifier: MIT
// The shipped configurations, unchanged. tests/scripts/configs_test.sh runs two steps of each.
#include <csignal>

#include "integration/tiny_run.h"
#include "support/paths.h"

namespace finetune::testing {
namespace {

const std::string kConfigs = source_dir() + "/configs/";

// Options that move a shipped configuration's files into a folder of the test.
Arguments into(const TemporaryFolder& folder, const std::string& name) {
  return {"--output_dir", folder / name, "--cache_dir", folder / "cache"};
}

ProcessResult train(const std::string& config, Arguments more) {
  more.insert(more.begin(), {"train", kConfigs + config});
  return finetune(more);
}

TEST(SmokeConfiguration, RunsWholeInHalfAMinute) {
  const TemporaryFolder folder;
  const ProcessResult result = train("smoke.yaml", into(folder, "smoke"));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_LT(result.seconds, 30.0);
  const Json state = trainer_state(folder / "smoke");
  EXPECT_EQ(state["global_step"], 30);
  EXPECT_LT(state["log_history"].back()["train_loss"].get<double>(), std::log(600.0));
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json",
                           "tokenizer_config.json", "train_results.json", "eval_results.json",
                           "all_results.json", "trainer_state.json", "checkpoint-30"}) {
    EXPECT_TRUE(std::filesystem::exists(folder / "smoke/" + name)) << name;
  }
}

TEST(ExampleConfiguration, WrittenByTheBinaryTrainsTheSameModelAndKeepsChangedFiles) {
  const TemporaryFolder folder;
  for (int time = 0; time < 2; ++time) {  // the second time there is nothing to write
    const ProcessResult written = finetune({"config", "example", "smoke", folder / "tried"});
    EXPECT_EQ(written.code, 0) << written.err;
    EXPECT_EQ(written.out,
              (folder / "tried/smoke.yaml") +
                  " and 4 files that it names are written; train with: finetune train " +
                  (folder / "tried/smoke.yaml") + "\n");
  }
  const Arguments few = {"--max_steps", "4", "--cache_dir", folder / "cache"};
  Arguments words = {"train", folder / "tried/smoke.yaml"};
  words.insert(words.end(), few.begin(), few.end());
  EXPECT_EQ(finetune(words).code, 0);
  words = {"--output_dir", folder / "shipped"};
  words.insert(words.end(), few.begin(), few.end());
  EXPECT_EQ(train("smoke.yaml", words).code, 0);
  EXPECT_TRUE(read_file(folder / "tried/runs/smoke/model.safetensors") ==
              read_file(folder / "shipped/model.safetensors"));

  std::ofstream(folder / "tried/smoke.yaml", std::ios::app) << "# mine\n";
  const std::string mine = read_file(folder / "tried/smoke.yaml");
  const ProcessResult again = finetune({"config", "example", "smoke", folder / "tried"});
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, ::testing::HasSubstr("smoke.yaml' exists and is not the example's file"));
  EXPECT_EQ(read_file(folder / "tried/smoke.yaml"), mine);
}

TEST(TwinConfigurations, InYamlAndJsonGiveEqualWeights) {
  const TemporaryFolder folder;
  for (const std::string format : {"yaml", "json"}) {
    Arguments words = into(folder, format);
    words.insert(words.end(), {"--max_steps", "2", "--save_steps", "40", "--report_to", "none"});
    const ProcessResult result = train("roberta_mlm." + format, words);
    EXPECT_EQ(result.code, 0) << result.err;
  }
  EXPECT_TRUE(read_file(folder / "yaml/model.safetensors") ==
              read_file(folder / "json/model.safetensors"));
  EXPECT_EQ(log_without_times(folder / "yaml"), log_without_times(folder / "json"));
}

// With its data, a tiny model instead of the downloaded one, and few updates.
TEST(Smollm2Configuration, IsKilledAndResumesToTheSameBits) {
  const TemporaryFolder folder;
  std::filesystem::copy_file(kText + "lighthouse.txt", folder / "shakespeare.txt");
  const auto words = [&](const std::string& name) {
    Arguments all = {"train",
                     kConfigs + "smollm2_shakespeare.yaml",
                     "--tokenizer_name",
                     source_dir() + "/tests/fixtures/tokenizers/lighthouse",
                     "--model_name_or_path",
                     "null",
                     "--model_type",
                     "llama",
                     "--config_overrides",
                     "num_hidden_layers=2,num_attention_heads=4,num_key_value_heads=2,"
                     "hidden_size=32,intermediate_size=64",
                     "--max_seq_length",
                     "32",
                     "--gradient_accumulation_steps",
                     "2",
                     "--save_steps",
                     "100",
                     "--save_total_limit",
                     "20",
                     "--max_steps",
                     "1500"};
    for (const std::string& word : into(folder, name)) all.push_back(word);
    return all;
  };
  const ProcessOptions options = {
      .environment = {{"SHAKESPEARE_DATA", folder / ""}}, .folder = "", .watch = folder / "killed"};
  std::filesystem::create_directory(folder / "killed");
  ASSERT_EQ(finetune(words("whole"), {options.environment, "", ""}).code, 0);
  Process process(finetune_command(words("killed")), options);
  ASSERT_TRUE(process.wait_for_file("checkpoint-300"));
  process.send(SIGKILL);
  ASSERT_EQ(process.finish().code, 128 + SIGKILL);
  const ProcessResult resumed = finetune(words("killed"), {options.environment, "", ""});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, ::testing::HasSubstr("resuming from "));
  EXPECT_TRUE(read_file(folder / "killed/model.safetensors") ==
              read_file(folder / "whole/model.safetensors"));
  EXPECT_EQ(log_without_times(folder / "killed"), log_without_times(folder / "whole"));
}

TEST(ShippedConfiguration, IsAcceptedByCheck) {
  for (const auto& entry : std::filesystem::directory_iterator(kConfigs)) {
    const ProcessResult result = finetune({"config", "check", "--no_files", entry.path().string()},
                                          {.environment = {{"ESPERANTO_DATA", "/data"},
                                                           {"JAPANESE_DATA", "/data"},
                                                           {"SHAKESPEARE_DATA", "/data"}},
                                           .folder = "",
                                           .watch = ""});
    EXPECT_EQ(result.code, 0) << entry.path() << result.err;
  }
}

}  // namespace
}  // namespace finetune::testing
