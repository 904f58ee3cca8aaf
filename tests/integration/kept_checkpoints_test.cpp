// SPDX-License-Identifier: MIT
// tests/fixtures/checkpoints has checkpoints of every format version, with the run that they belong
// to and its final losses: runs must resume after an upgrade.
#include <algorithm>

#include "integration/tiny_run.h"
#include "support/paths.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;

// Another processor or libtorch rounds differently; with a lost moment or a restarted schedule the
// difference would be a hundred times larger.
constexpr double kTolerance = 2e-3;

std::vector<std::string> kept_runs() {
  std::vector<std::string> folders;
  const std::string root = source_dir() + "/tests/fixtures/checkpoints";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().filename() == "expected.json") {
      folders.push_back(entry.path().parent_path().string());
    }
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

void expect_near(const Json& actual, const Json& expected, const std::string& where) {
  ASSERT_EQ(actual.size(), expected.size()) << where;
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(actual[i]["step"], expected[i]["step"]) << where;
    for (const auto& [key, value] : expected[i].items()) {
      if (key == "step") continue;
      ASSERT_TRUE(actual[i].contains(key)) << where << ": " << actual[i];
      EXPECT_NEAR(actual[i][key].get<double>(), value.get<double>(), kTolerance)
          << where << ", step " << expected[i]["step"] << ", " << key;
    }
  }
}

TEST(KeptCheckpoints, OfEveryFormatVersionGoOnToTheKeptLosses) {
  const std::vector<std::string> runs = kept_runs();
  ASSERT_GE(runs.size(), 2U);
  for (const std::string& kept : runs) {
    const TemporaryFolder folder;
    const std::string run = folder / "run";
    std::filesystem::copy(kept, run, std::filesystem::copy_options::recursive);
    std::filesystem::create_directory(run + "/out");
    std::filesystem::rename(run + "/checkpoint-4", run + "/out/checkpoint-4");
    const ProcessResult result = finetune({"train", run + "/run.yaml"});
    ASSERT_EQ(result.code, 0) << kept << ": " << result.err;
    EXPECT_THAT(result.err, HasSubstr("resuming from")) << kept;
    EXPECT_THAT(result.err, HasSubstr("at step 4 of 8")) << kept;
    expect_near(trainer_state(run + "/out")["log_history"],
                parse_json(read_file(kept + "/expected.json"), kept), kept);
  }
}

}  // namespace
}  // namespace finetune::testing
