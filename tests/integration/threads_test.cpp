// SPDX-License-Identifier: MIT
// How the threads of the binary wait.
#include <sys/resource.h>

#include <thread>

#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Returns the settings that the OpenMP library prints when it is loaded. The number of polls before
// a thread sleeps is more reliable than the policy, which is printed as passive if it was never
// set.
std::string shown_settings(const Arguments& words, const TinyRun::Keys& environment = {}) {
  ProcessOptions options;
  options.environment = environment;
  options.environment["OMP_DISPLAY_ENV"] = "verbose";
  const ProcessResult shown = run(finetune_command(words), options);
  EXPECT_EQ(shown.code, 0) << shown.err;
  return shown.err;
}

TEST(Threads, SleepWhileTheyWaitInEveryCommand) {
  for (const Arguments& words : {Arguments{"--help"}, {"doctor"}, {"config", "defaults"}}) {
    EXPECT_THAT(shown_settings(words), HasSubstr("GOMP_SPINCOUNT = '0'")) << words[0];
  }
}

TEST(Threads, WaitAsTheUserSays) {
  const Arguments words = {"--help"};
  EXPECT_THAT(shown_settings(words, {{"OMP_WAIT_POLICY", "active"}}),
              HasSubstr("OMP_WAIT_POLICY = 'ACTIVE'"));
  EXPECT_THAT(shown_settings(words, {{"GOMP_SPINCOUNT", "12345"}}),
              HasSubstr("GOMP_SPINCOUNT = '12345'"));
}

// A thread that sleeps gives its processor away each time, on a busy machine too; one that spins
// keeps it. The threads wait at the end of each of hundreds of loops.
TEST(Threads, GiveTheirProcessorAwayWhereSpinningOnesKeepIt) {
  if (std::thread::hardware_concurrency() < 2) {
    GTEST_SKIP() << "libgomp hardly spins where threads share one processor";
  }
  TinyRun run({{"max_steps", "8"}, {"eval_strategy", "no"}, {"save_strategy", "no"}});
  const auto given_away = [&](const TinyRun::Keys& environment) {
    rusage before = {};
    ::getrusage(RUSAGE_CHILDREN, &before);
    ProcessOptions options;
    options.environment = environment;
    const ProcessResult end = run.train({"--restart"}, options);
    EXPECT_EQ(end.code, 0) << end.err;
    rusage after = {};
    ::getrusage(RUSAGE_CHILDREN, &after);
    return after.ru_nvcsw - before.ru_nvcsw;
  };
  const std::string threads = std::to_string(2 * std::thread::hardware_concurrency());
  const int64_t asleep = given_away({{"OMP_NUM_THREADS", threads}});
  const int64_t spinning =
      given_away({{"OMP_NUM_THREADS", threads}, {"OMP_WAIT_POLICY", "active"}});
  EXPECT_GT(asleep, 3 * spinning);
}

// A forked process inherits the OpenMP settings of its parent; a command at the end of a run must
// have the user's settings.
TEST(Threads, LeaveTheEnvironmentOfTheUsersCommandsAsItWas) {
  TinyRun run({{"max_steps", "2"}, {"eval_strategy", "no"}});
  run.set({{"on_finish_command", "[sh, -c, 'env > \"$0\"', " + (run.folder() / "seen") + "]"}});
  ProcessOptions options;
  options.environment = {{"OLDPWD", "/here"}, {"MAIL", "/there"}};
  const ProcessResult end = run.train({}, options);
  ASSERT_EQ(end.code, 0) << end.err;
  const std::string seen = read_file(run.folder() / "seen");
  EXPECT_THAT(seen, Not(HasSubstr("OMP_WAIT_POLICY=passive")));
  EXPECT_THAT(seen, HasSubstr("OLDPWD=/here\n"));
  EXPECT_THAT(seen, HasSubstr("MAIL=/there\n"));
}

}  // namespace
}  // namespace finetune::testing
