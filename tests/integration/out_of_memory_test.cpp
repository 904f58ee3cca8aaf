// SPDX-License-Identifier: MIT
// After OOM fewer samples are computed at a time: the same update, from that step on and for the
// rest of the run.
#include "integration/tiny_run.h"
#include "support/paths.h"

namespace finetune::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

const TinyRun::Keys kTightRun = {{"max_steps", "6"},
                                 {"save_steps", "2"},
                                 {"save_total_limit", ""},
                                 {"eval_strategy", "no"},
                                 {"validation_file", ""},
                                 {"dataloader_num_workers", "2"},
                                 {"gradient_accumulation_steps", "1"},
                                 {"per_device_train_batch_size", "12"},
                                 {"line_by_line", "true"},
                                 {"train_sampling_strategy", "sequential"}};

ProcessOptions limit(int64_t bytes) {
  return {.environment = {{"FINETUNE_TEST_ALLOCATION_LIMIT", std::to_string(bytes)}},
          .folder = "",
          .watch = ""};
}

// Short lines, except in the third update, whose activations need more than kLimit.
constexpr int64_t kLimit = 60000;

class LackOfMemory : public ::testing::Test {
 protected:
  LackOfMemory() {
    std::string text;
    for (int i = 0; i < 84; ++i) {
      text += i >= 24 && i < 36 ? "the light of the tower and the keeper of the light by the sea\n"
                                : "a light\n";
    }
    write_file(run_.folder() / "lines.txt", text);
    run_.set(kTightRun);
    run_.set(lines());
  }

  // With validation data, none of these lines is held out.
  [[nodiscard]] TinyRun::Keys lines() const {
    const std::string path = run_.folder() / "lines.txt";
    return {{"train_file", path}, {"validation_file", path}};
  }

  TinyRun run_;
};

TEST_F(LackOfMemory, CutsTheBatchFromThatVeryStepOn) {
  const ProcessResult rescued = run_.train({}, limit(kLimit));
  ASSERT_EQ(rescued.code, 0) << rescued.err;
  ASSERT_THAT(rescued.err, HasSubstr("step 3: out of memory"));
  EXPECT_THAT(rescued.err, HasSubstr("6 x 2 samples instead of 12"));
  EXPECT_THAT(rescued.err, HasSubstr("the effective batch stays 12"));
  const auto expected = saved_tensors(run_.out("checkpoint-6"));
  const Json log = log_without_times(run_.out());

  // The same run with enough memory, where the keys set that micro-batch size at that step.
  TinyRun reported(kTightRun);
  reported.set(lines());
  reported.train_until(2);
  const ProcessResult result = reported.train({"--per_device_train_batch_size", "6"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(saved_tensors(reported.out("checkpoint-6")) == expected);
  EXPECT_EQ(log_without_times(reported.out()), log);
}

TEST_F(LackOfMemory, IsRememberedByTheCheckpoint) {
  ASSERT_EQ(run_.train({}, limit(kLimit)).code, 0);
  const auto expected = saved_tensors(run_.out("checkpoint-6"));
  const std::string kept = run_.folder() / "checkpoint-4";
  std::filesystem::rename(run_.out("checkpoint-4"), kept);
  std::filesystem::remove_all(run_.out());
  std::filesystem::create_directories(run_.out());
  std::filesystem::rename(kept, run_.out("checkpoint-4"));
  const ProcessResult resumed = run_.train();
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("memory did not suffice for 12 samples at a time: 6"));
  EXPECT_THAT(resumed.err, Not(HasSubstr("out of memory")));
  EXPECT_TRUE(saved_tensors(run_.out("checkpoint-6")) == expected);
}

TEST_F(LackOfMemory, IsForgottenWhereTheKeyIsAnother) {
  ASSERT_EQ(run_.train({"--stop_at_step", "4"}, limit(kLimit)).code, 75);
  const ProcessResult resumed = run_.train({"--per_device_train_batch_size", "4"});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, Not(HasSubstr("memory did not suffice")));
}

// The embeddings alone exceed the limit.
TEST_F(LackOfMemory, SaysWhatHelpsWhereNoCutDoes) {
  const ProcessResult result = run_.train({}, limit(kLimit / 4));
  ASSERT_EQ(result.code, 1) << result.err;
  EXPECT_THAT(result.err, ContainsRegex("out of memory (before|in) [^\n]*step"));
  EXPECT_THAT(result.err, HasSubstr("memory_budget"));
  EXPECT_THAT(result.err, HasSubstr("per_device_train_batch_size"));
  EXPECT_THAT(result.err, Not(HasSubstr("internal error")));
  EXPECT_THAT(result.err, Not(HasSubstr("frame #")));
}

TEST_F(LackOfMemory, KeepsAnOddBatchWhole) {
  run_.set({{"per_device_train_batch_size", "15"}});
  const ProcessResult result = run_.train({}, limit(kLimit));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("5 x 3 samples instead of 15"));
  EXPECT_THAT(result.err, HasSubstr("the effective batch stays 15"));
}

TEST_F(LackOfMemory, KeepsTheSamplesOfAnEpochWhereTheLastBatchIsDropped) {
  run_.set({{"per_device_train_batch_size", "8"},
            {"dataloader_drop_last", "true"},
            {"max_steps", ""},
            {"num_train_epochs", "1"}});
  const ProcessResult result = run_.train({}, limit(kLimit * 2 / 3));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("4 x 2 samples instead of 8"));
  EXPECT_TRUE(std::filesystem::exists(run_.out("checkpoint-10")));
  EXPECT_FALSE(std::filesystem::exists(run_.out("checkpoint-11")));
}

TEST_F(LackOfMemory, InTheEvaluationChangesNoMetric) {
  run_.set({{"eval_strategy", "steps"},
            {"eval_steps", "3"},
            {"per_device_train_batch_size", "4"},
            {"per_device_eval_batch_size", "64"}});
  ASSERT_EQ(run_.train().code, 0);
  const Json whole = log_without_times(run_.out());
  const ProcessResult result = run_.train({"--restart"}, limit(kLimit));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("out of memory in the evaluation"));
  const Json cut = log_without_times(run_.out());
  ASSERT_EQ(cut.size(), whole.size());
  int seen = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const auto& [key, value] : whole[i].items()) {
      if (!value.is_number()) continue;
      EXPECT_NEAR(cut[i][key].get<double>(), value.get<double>(), 1e-5) << key;
      seen += key == "eval_loss";
    }
  }
  EXPECT_EQ(seen, 2);
}

TEST_F(LackOfMemory, IsAnErrorWhereEachGradientIsFreedAtOnce) {
  run_.set({{"optimizer_in_backward", "true"}, {"max_grad_norm", "0"}});
  const ProcessResult result = run_.train({}, limit(kLimit));
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_THAT(result.err, ContainsRegex("out of memory (before|in) [^\n]*step"));
  EXPECT_TRUE(std::filesystem::exists(run_.out("checkpoint-2")));
}

// A limit set by the system: most of the memory belongs to the batch.
TEST(LimitedAddresses, CutTheBatchUntilItFits) {
  TinyRun run(kTightRun);
  run.set({{"config_overrides",
            "{num_hidden_layers: 4, num_attention_heads: 2, hidden_size: 32, intermediate_size: "
            "8192, max_position_embeddings: 34, type_vocab_size: 1}"},
           {"line_by_line", "false"},
           {"max_steps", "2"},
           {"per_device_train_batch_size", "384"}});
  const auto under = [&](int mebibytes) {
    return finetune::testing::run(
        {"bash", "-c",
         "ulimit -v " + std::to_string(mebibytes * 1024) + " && exec \"$0\" train \"$1\" --restart",
         binary_path(), run.config()});
  };
  // The limit grows by a quarter each time, from one with which the program does not start.
  for (int mebibytes = 800; mebibytes < 12800; mebibytes = mebibytes * 5 / 4) {
    const ProcessResult result = under(mebibytes);
    if (result.code == 127) continue;  // not enough to load the libraries
    // Exit code 4: trained to the end, without memory to save.
    ASSERT_TRUE(result.code == 0 || result.code == 1 || result.code == 4)
        << result.code << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("internal error")));
    EXPECT_THAT(result.err, Not(HasSubstr("frame #")));
    if (result.code == 1) {
      EXPECT_THAT(result.err, HasSubstr("memory"));
      continue;
    }
    if (result.err.find("out of memory") == std::string::npos) break;
    EXPECT_THAT(result.err, HasSubstr("the effective batch stays 384"));
    return;
  }
  GTEST_SKIP() << "no limit was found that a part of the batch fits into";
}

}  // namespace
}  // namespace finetune::testing
