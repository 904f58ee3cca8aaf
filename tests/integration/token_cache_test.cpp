// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "integration/process.h"
#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TinyRun::Keys short_run(const TinyRun::Keys& more) {
  TinyRun::Keys keys = {{"max_steps", "6"},
                        {"eval_steps", "6"},
                        {"save_steps", "6"},
                        {"gradient_accumulation_steps", "1"}};
  for (const auto& [key, value] : more) keys[key] = value;
  return keys;
}

std::string weights(const TinyRun& run) { return read_file(run.out("model.safetensors")); }

TEST(TokenCache, GivesTheBitsOfARunWithoutIt) {
  const TemporaryFolder folder;
  const TinyRun without(short_run({{"cache_dir", folder.write("file", "") + "/cache"}}));
  const ProcessResult plain = without.train();
  ASSERT_EQ(plain.code, 0) << plain.err;
  EXPECT_THAT(plain.err, HasSubstr("stay in memory"));
  const TinyRun first(short_run({{"cache_dir", folder / "cache"}}));
  const ProcessResult built = first.train();
  ASSERT_EQ(built.code, 0) << built.err;
  EXPECT_THAT(built.err, HasSubstr("are kept in"));
  const TinyRun second(short_run({{"cache_dir", folder / "cache"}}));
  const ProcessResult found = second.train();
  ASSERT_EQ(found.code, 0) << found.err;
  EXPECT_THAT(found.err, HasSubstr("train_file: tokenised before"));
  EXPECT_THAT(found.err, HasSubstr("validation_file: tokenised before"));
  EXPECT_EQ(weights(first), weights(without));
  EXPECT_EQ(weights(second), weights(without));
}

TEST(TokenCache, IsPreparedBeforehandAndResumedWithOrWithoutIt) {
  const TinyRun run(short_run({}));
  Arguments words = finetune_command({"prepare", run.config()});
  const ProcessResult prepared = testing::run(words);
  ASSERT_EQ(prepared.code, 0) << prepared.err;
  const Json said = parse_json(prepared.out, "prepare");
  EXPECT_GT(said["train_samples"], 0);
  EXPECT_GT(said["eval_samples"], 0);
  const ProcessResult begun = run.train({"--stop_at_step", "3"});
  ASSERT_EQ(begun.code, 75) << begun.err;
  EXPECT_THAT(begun.err, HasSubstr("train_file: tokenised before"));
  std::filesystem::remove_all(run.folder() / "cache");
  const ProcessResult ended = run.train();
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, Not(HasSubstr("tokenised before")));
  EXPECT_THAT(ended.err, HasSubstr("resuming from"));
  const TinyRun unbroken(short_run({}));
  ASSERT_EQ(unbroken.train().code, 0);
  EXPECT_EQ(weights(run), weights(unbroken));
}

TEST(TokenCache, IsNotPreparedWhereNothingCanBeKept) {
  const TemporaryFolder folder;
  const TinyRun run(short_run({{"cache_dir", folder.write("file", "") + "/cache"}}));
  const ProcessResult prepared = testing::run(finetune_command({"prepare", run.config()}));
  EXPECT_EQ(prepared.code, 1) << prepared.err;
  EXPECT_EQ(prepared.out, "");
  EXPECT_THAT(prepared.err, HasSubstr("train_file: tokenised data cannot be kept in cache_dir"));
}

// Without a writable cache the tokens would exceed the available memory.
TEST(TokenCache, IsNotReplacedByMemoryThatIsNotThere) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "root/proc");
  const TinyRun run(short_run({{"cache_dir", folder.write("file", "") + "/cache"}}));
  ProcessOptions options;
  options.environment = {{"FINETUNE_TEST_MEMORY_ROOT", folder / "root"}};
  static_cast<void>(folder.write("root/proc/meminfo", "MemAvailable: 16 kB\n"));
  const ProcessResult refused = run.train({}, options);
  EXPECT_EQ(refused.code, 1) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("train_file: the tokens need about 1 MB of memory"));
  EXPECT_THAT(refused.err, HasSubstr("cache_dir cannot keep them in"));
  static_cast<void>(folder.write("root/proc/meminfo", "MemAvailable: 1600000 kB\n"));
  const ProcessResult trained = run.train({}, options);
  EXPECT_EQ(trained.code, 0) << trained.err;
}

TEST(TokenCache, ComesBackFromTheMirrorOnAFreshMachine) {
  const TemporaryFolder folder;
  const TinyRun run(short_run({{"mirror_dir", folder / "mirror"}}));
  const ProcessResult begun = run.train({"--stop_at_step", "3"});
  ASSERT_EQ(begun.code, 75) << begun.err;
  std::filesystem::remove_all(run.out());
  std::filesystem::remove_all(run.folder() / "cache");
  const ProcessResult ended = run.train();
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("tokenised data come from the mirror"));
  EXPECT_THAT(ended.err, HasSubstr("train_file: tokenised before"));
  EXPECT_THAT(ended.err, Not(HasSubstr("are kept in")));
}

}  // namespace
}  // namespace finetune::testing
