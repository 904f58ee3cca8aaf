// SPDX-License-Identifier: MIT
// Limits of a session: the last save is complete before the limit, and the bits are unchanged.
#include <chrono>

#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kSessionSteps = 20'000;  // more than a session can do

std::string hours(double seconds) { return std::to_string(seconds / 3600.0); }

// Keys of a run that would take minutes, with little output.
TinyRun::Keys long_run() {
  return {{"max_steps", std::to_string(kSessionSteps)},
          {"eval_strategy", "no"},
          {"do_eval", "false"},
          {"logging_steps", "100000"},
          {"save_steps", "100000"}};
}

int newest_step(const TinyRun& run) {
  int newest = -1;
  for (const auto& entry : std::filesystem::directory_iterator(run.out())) {
    const std::string name = entry.path().filename();
    if (name.starts_with("checkpoint-")) newest = std::max(newest, std::stoi(name.substr(11)));
  }
  return newest;
}

TEST(Session, SavesBeforeItsHoursAreOver) {
  TinyRun run(long_run());
  const ProcessResult result = run.train({"--session_hours", hours(6)});
  EXPECT_EQ(result.code, 75) << result.err;
  EXPECT_LT(result.seconds, 6);
  EXPECT_GT(result.seconds, 1);
  EXPECT_THAT(result.err, HasSubstr("stopped by session_hours (0.00166"));
  EXPECT_THAT(result.err, HasSubstr("with everything saved"));
  EXPECT_THAT(result.err, HasSubstr("1 session so far, "));
  EXPECT_THAT(result.err, HasSubstr(" more session"));
  const int step = newest_step(run);
  ASSERT_GT(step, 0);

  // Compare with a run that was not stopped.
  const std::string last = std::to_string(step + 3);
  const ProcessResult resumed = run.train({"--stop_at_step", last});
  ASSERT_EQ(resumed.code, 75) << resumed.err;
  const TinyRun whole(long_run());
  ASSERT_EQ(whole.train({"--stop_at_step", last}).code, 75);
  for (const char* name : {"model.safetensors", "optimizer.pt"}) {
    EXPECT_TRUE(read_file(run.out("checkpoint-" + last + "/" + name)) ==
                read_file(whole.out("checkpoint-" + last + "/" + name)))
        << name;
  }
}

TEST(Session, SavesBeforeItsHoursAreOverInsideAnEvaluation) {
  TinyRun run(long_run());
  std::string text;
  for (int i = 0; i < 6000; ++i) text += read_file(kText + "lighthouse-valid.txt");
  run.set({{"eval_strategy", "steps"},
           {"eval_steps", "3"},
           {"per_device_eval_batch_size", "1"},
           {"validation_file", run.folder().write("valid.txt", text)}});
  const ProcessResult result = run.train({"--session_hours", hours(12)});
  EXPECT_EQ(result.code, 75) << result.err;
  EXPECT_LT(result.seconds, 12);
  EXPECT_THAT(result.err, HasSubstr("at step 3 of"));
  const Json state = parse_json(read_file(run.out("checkpoint-3/finetune_state.json")), "state");
  EXPECT_TRUE(state["evaluation_pending"].get<bool>());
}

TEST(Session, StopsInTimeForADeadline) {
  TinyRun run(long_run());
  const auto deadline = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()) + 7;
  std::tm time = {};
  ::gmtime_r(&deadline, &time);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &time);
  const ProcessResult result = run.train({"--session_deadline", text});
  EXPECT_EQ(result.code, 75) << result.err;
  EXPECT_LT(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()), deadline);
  EXPECT_THAT(result.err, HasSubstr("stopped by session_deadline (" + std::string(text) + ")"));
}

TEST(Session, ThatIsOverAtItsStartTouchesNothing) {
  const TinyRun run;
  run.train_until(5);
  const std::string before = read_file(run.out("checkpoint-5/manifest.json"));
  const ProcessResult result = run.train({"--session_hours", "0.0000001"});
  EXPECT_EQ(result.code, 75);
  EXPECT_THAT(result.err, HasSubstr("session_hours (1e-07 h) was reached"));
  EXPECT_THAT(result.err, HasSubstr("nothing was done"));
  EXPECT_EQ(read_file(run.out("checkpoint-5/manifest.json")), before);
  expect_resumes_equal(run);
}

// Three seconds are reserved for saving: the startup of a new process uses the rest, or the limit
// is even shorter.
TEST(Session, ThatIsTooShortForAStepAndASaveSaysSo) {
  const TinyRun run;
  run.train_until(5);
  ProcessOptions fresh;
  fresh.may_be_warm = false;
  const ProcessResult result = run.train({"--session_hours", hours(3.1)}, fresh);
  EXPECT_EQ(result.code, 75) << result.err;
  EXPECT_LT(result.seconds, 3.1);
  EXPECT_THAT(result.err, AnyOf(HasSubstr("no step was completed in this session: session_hours"),
                                HasSubstr("it leaves too little time to begin")));
  expect_resumes_equal(run);
}

TEST(Session, AFinishedRunIsFinishedHoweverLittleTimeThereIs) {
  const TinyRun run;
  ASSERT_EQ(run.train().code, 0);
  EXPECT_EQ(run.train({"--session_hours", "0.0000001"}).code, 0);
}

TEST(Session, StopsBeforeItsUnitsAreSpentAndKeepsCountOverSessions) {
  TinyRun run(long_run());
  // One unit per second, so that the budget equals the seconds of all sessions.
  run.set({{"hardware", "{units_per_hour: 3600, price_per_unit: 0.5, currency: EUR}"},
           {"unit_budget", "8"}});
  const ProcessResult first = run.train({"--stop_at_step", "3"});
  ASSERT_EQ(first.code, 75) << first.err;
  EXPECT_THAT(first.err, HasSubstr(" EUR) spent, "));
  const auto spent = [&](int step) {
    const std::string path = run.out("checkpoint-" + std::to_string(step) + "/finetune_state.json");
    return parse_json(read_file(path), path)["session"]["cost"];
  };
  const double units = spent(3)["units"].get<double>();
  EXPECT_GT(units, 0);
  EXPECT_LT(units, first.seconds);
  EXPECT_DOUBLE_EQ(spent(3)["money"]["EUR"].get<double>(), units / 2);

  const ProcessResult second = run.train({"--unit_budget", std::to_string(units + 8)});
  EXPECT_EQ(second.code, 75) << second.err;
  EXPECT_LT(second.seconds, 8);
  EXPECT_THAT(second.err, HasSubstr("stopped by unit_budget ("));
  const int step = newest_step(run);
  EXPECT_GT(step, 3);
  EXPECT_GT(spent(step)["units"].get<double>(), units + 1);

  const ProcessResult third = run.train({"--unit_budget", "0.5"});
  EXPECT_EQ(third.code, 75);
  EXPECT_THAT(third.err, HasSubstr("raise unit_budget to continue"));
  EXPECT_EQ(newest_step(run), step);
}

TEST(Session, RefusesContradictionsNamingBothKeys) {
  const TinyRun run;
  const ProcessResult two = run.train({"--session_hours", "2", "--session_deadline", "23:30"});
  EXPECT_EQ(two.code, 2);
  EXPECT_THAT(two.err, HasSubstr("'session_deadline' and 'session_hours'"));
  const ProcessResult budget = run.train({"--unit_budget", "2"});
  EXPECT_EQ(budget.code, 2);
  EXPECT_THAT(budget.err, HasSubstr("'unit_budget' needs 'hardware'"));
  const ProcessResult time = run.train({"--session_deadline", "soon"});
  EXPECT_EQ(time.code, 2);
  EXPECT_THAT(time.err, HasSubstr("'session_deadline' must be a time such as 23:30"));
  const ProcessResult name = run.train({"--hardware", "colab_t44"});
  EXPECT_EQ(name.code, 2);
  EXPECT_THAT(name.err, HasSubstr("did you mean 'colab_t4'?"));
}

}  // namespace
}  // namespace finetune::testing
