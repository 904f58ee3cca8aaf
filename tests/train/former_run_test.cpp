// SPDX-License-Identifier: MIT
#include "train/folder/former_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "checkpoint/run_folder.h"

namespace finetune {
namespace {

using checkpoint::RunFolder;

const std::vector<std::string> kMoved = {
    "all_results.json",  "finetune_state.json", "manifest.json", "metrics.jsonl",
    "model.safetensors", "trainer_state.json",  "runs/events"};
const std::vector<std::string> kKept = {"config.json", "tokenizer.json", "mine.yaml",
                                        "sessions.jsonl"};

void fill(const RunFolder& run) {
  std::filesystem::create_directory(run.output_dir + "/runs");
  for (const auto* names : {&kMoved, &kKept}) {
    for (const std::string& name : *names) std::ofstream(run.output_dir + "/" + name) << name;
  }
}

std::string content_of(const std::string& path) {
  return std::filesystem::exists(path) ? FileSystem::local().read_all(path) : "";
}

TEST(FormerRun, IsMovedWithCopiesOfTheModelsSmallFiles) {
  RunFolder run;
  fill(run);
  const std::string quarantined = quarantine_former_run(run.files, run.output_dir);
  EXPECT_EQ(quarantined, run.output_dir + "/run.old-1");
  for (const std::string& name : kMoved) {
    EXPECT_EQ(content_of(quarantined + "/" + name), name);
    EXPECT_FALSE(std::filesystem::exists(run.output_dir + "/" + name)) << name;
  }
  for (const std::string& name : kKept) EXPECT_EQ(content_of(run.output_dir + "/" + name), name);
  EXPECT_EQ(content_of(quarantined + "/config.json"), "config.json");
  EXPECT_FALSE(std::filesystem::exists(quarantined + "/mine.yaml"));
  EXPECT_EQ(quarantine_former_run(run.files, run.output_dir), "") << "nothing is left to move";
}

TEST(FormerRun, LosesNoFileWhereverTheMoveIsInterrupted) {
  bool is_complete = false;
  for (int64_t operation = 0; !is_complete; ++operation) {
    ASSERT_LT(operation, 200);
    RunFolder run;
    fill(run);
    run.files.crash_at(run.files.operations() + operation);
    try {
      is_complete = !quarantine_former_run(run.files, run.output_dir).empty();
    } catch (const finetune::testing::CrashSimulated&) {
      // The state goes first and the manifest last, so that a half-moved model is not trained over.
      const bool has_state = std::filesystem::exists(run.output_dir + "/finetune_state.json");
      const bool has_weights = std::filesystem::exists(run.output_dir + "/model.safetensors");
      const bool has_manifest = std::filesystem::exists(run.output_dir + "/manifest.json");
      EXPECT_TRUE(!has_state || has_weights) << operation;
      EXPECT_TRUE(!has_weights || has_manifest) << operation;
      (void)quarantine_former_run(FileSystem::local(), run.output_dir);
    }
    for (const std::string& name : kMoved) {
      EXPECT_FALSE(std::filesystem::exists(run.output_dir + "/" + name)) << operation << name;
      EXPECT_TRUE(content_of(run.output_dir + "/run.old-1/" + name) == name ||
                  content_of(run.output_dir + "/run.old-2/" + name) == name)
          << operation << name;
    }
  }
}

}  // namespace
}  // namespace finetune
