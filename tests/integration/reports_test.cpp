// SPDX-License-Identifier: MIT
// Output for users: completion, times, short numbers, numbers of steps.
#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// Returns bash's completions after these words, of which the last is incomplete.
std::string completed(const std::string& script, const std::string& words, int index) {
  const ProcessResult result =
      run({"bash", "-c",
           "source " + script + "; COMP_WORDS=(" + words +
               "); COMP_CWORD=" + std::to_string(index) + "; _finetune; echo ${COMPREPLY[@]}"});
  EXPECT_EQ(result.code, 0) << result.err;
  return result.out;
}

TEST(BashCompletion, KnowsValuesSubcommandsAndOptions) {
  const TemporaryFolder folder;
  const std::string script = folder.write("finetune.bash", finetune({"completion", "bash"}).out);
  const auto offered = [&](const std::string& words, int index) {
    return completed(script, words, index);
  };
  EXPECT_EQ(offered("finetune train --task mult", 3), "multiple_choice\n");
  EXPECT_EQ(offered("finetune train --task = mult", 4), "multiple_choice\n");
  EXPECT_EQ(offered("finetune train --fp16 t", 3), "true\n");
  EXPECT_EQ(offered("finetune config che", 2), "check\n");
  EXPECT_EQ(offered("finetune tokenizer enc", 2), "encode\n");
  EXPECT_EQ(offered("finetune completion ''", 2), "bash zsh fish man\n");
  EXPECT_EQ(offered("finetune train --restart", 2), "--restart\n");
  EXPECT_EQ(offered("finetune train --stop_a", 2), "--stop_at_step\n");
  EXPECT_EQ(offered("finetune train --dry", 2), "--dry_run\n");
  EXPECT_EQ(offered("finetune checkpoints --ver", 2), "--verify\n");
  EXPECT_EQ(offered("finetune config check --no_f", 3), "--no_files\n");
  EXPECT_EQ(offered("finetune tokenizer train --vocab_s", 3), "--vocab_size\n");
  EXPECT_EQ(offered("finetune evaluate --checkpoint a", 3), "auto\n");
  EXPECT_THAT(offered("finetune predict --te", 2), HasSubstr("--text "));
  EXPECT_EQ(offered("finetune verify-resume --interr", 2), "--interrupt_at\n");
}

TEST(Completion, IsValidForEachShell) {
  const std::string fish = finetune({"completion", "fish"}).out;
  EXPECT_THAT(fish, HasSubstr("-a checkpoints -d \"list a run's checkpoints"));
  EXPECT_THAT(fish, HasSubstr("-l task -a 'mlm "));
  EXPECT_THAT(fish, HasSubstr("__fish_seen_subcommand_from checkpoints' -l verify\n"));
  EXPECT_THAT(finetune({"completion", "zsh"}).out, HasSubstr("bashcompinit"));
  const std::string page = finetune({"completion", "man"}).out;
  EXPECT_THAT(page, HasSubstr(".TH FINETUNE 1"));
  EXPECT_THAT(page, HasSubstr(".B per_device_train_batch_size"));
}

TEST(Doctor, NamesPyarrowAndHf) {
  const ProcessResult result = finetune({"doctor"});
  EXPECT_THAT(result.out, ContainsRegex("\nParquet, Arrow +(pyarrow [0-9.]+ \\(|no pyarrow)"));
  EXPECT_THAT(result.out, ContainsRegex("\nhf +[^ ]"));
  const ProcessResult without =
      finetune({"doctor"}, {.environment = {{"PATH", "/nowhere"}, {"FINETUNE_PYTHON", "/none"}},
                            .folder = "",
                            .watch = ""});
  EXPECT_THAT(without.out, HasSubstr("no pyarrow: these files cannot be read"));
  EXPECT_THAT(without.out, ContainsRegex("\nhf +not installed"));
}

TEST(VerifyResume, TakesFewerStepsOfAShorterRun) {
  const TinyRun run(TinyRun::Keys{{"eval_strategy", "\"no\""}});
  const ProcessResult by_steps = finetune({"verify-resume", run.config(), "--max_steps", "5"});
  EXPECT_EQ(by_steps.code, 0) << by_steps.err;
  EXPECT_THAT(by_steps.out, HasSubstr("equal: 5 steps, interrupted at step 3"));
  // The number of steps per epoch is known only after the data are read.
  const ProcessResult by_epochs =
      finetune({"verify-resume", run.config(), "--max_steps", "-1", "--num_train_epochs", "1",
                "--max_train_samples", "24"});
  EXPECT_EQ(by_epochs.code, 0) << by_epochs.err;
  EXPECT_THAT(by_epochs.out, HasSubstr("equal: 3 steps, interrupted at step 2"));
  const ProcessResult one = finetune({"verify-resume", run.config(), "--max_steps", "1"});
  EXPECT_EQ(one.code, 2);
  EXPECT_THAT(one.err, HasSubstr("the run has 1 step, so it cannot be interrupted"));
  const ProcessResult more =
      finetune({"verify-resume", run.config(), "--max_steps", "5", "--steps", "6"});
  EXPECT_EQ(more.code, 2);
  EXPECT_THAT(more.err, HasSubstr("choose fewer --steps"));
}

TEST(Plan, PrintsTimesAsPeopleReadThem) {
  const TinyRun run(TinyRun::Keys{{"max_steps", "3"}});
  const ProcessResult plain = finetune({"plan", run.config()});
  EXPECT_EQ(plain.code, 0) << plain.err;
  EXPECT_THAT(plain.out, Not(ContainsRegex("[0-9]e[-+][0-9]")));
  EXPECT_THAT(plain.out, Not(HasSubstr("0.00 ")));
  EXPECT_THAT(plain.out, ContainsRegex("in (under 1 ms|[0-9.]+ (ms|s|min|h)), estimated"));
  const ProcessResult measured = finetune({"plan", run.config(), "--measure", "2"});
  EXPECT_EQ(measured.code, 0) << measured.err;
  EXPECT_THAT(measured.out, ContainsRegex("\nthis machine: [0-9.]+ (ms|s|min), measured here\n"));
  EXPECT_THAT(measured.out, ContainsRegex("\nthe whole run +[0-9.]+ (ms|s|min)\n"));
}

TEST(Plan, CallsABatchOfAllSamplesSo) {
  const TinyRun run(TinyRun::Keys{{"max_train_samples", "16"}});
  const ProcessResult result = finetune({"plan", run.config(), "--memory", "64GiB"});
  EXPECT_THAT(result.out, HasSubstr(": all 16 samples\n"));
}

TEST(Messages, HaveShortNumbersWhereFilesHaveAllDigits) {
  const TinyRun run(TinyRun::Keys{{"max_steps", "2"}, {"eval_strategy", "\"no\""}});
  const ProcessResult result = run.train();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, ContainsRegex("train_loss [0-9]\\.[0-9]{1,3};"));
  EXPECT_GT(Json(trainer_state(run.out())["log_history"].back()["train_loss"]).dump().size(), 8U);
}

}  // namespace
}  // namespace finetune::testing
