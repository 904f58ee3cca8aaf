// SPDX-License-Identifier: MIT
// What an interruption, a second start or bad input must not change, policy by policy.
#include <fcntl.h>
#include <sys/file.h>

#include "integration/tiny_run.h"
#include "support/paths.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The smallest run with all parts: 12 updates of 8 rows.
TinyRun::Keys small(const TinyRun::Keys& more = {}) {
  TinyRun::Keys keys = {{"max_steps", "12"},        {"max_train_samples", "128"},
                        {"max_eval_samples", "16"}, {"dataloader_num_workers", "0"},
                        {"eval_steps", "4"},        {"save_steps", "4"}};
  for (const auto& [key, value] : more) keys[key] = value;
  return keys;
}

void expect_finishes(const TinyRun& run, const Arguments& more = {}) {
  const ProcessResult result = run.train(more);
  ASSERT_EQ(result.code, 0) << result.err;
}

void expect_same_result(const TinyRun& run, const TinyRun& whole) {
  EXPECT_TRUE(read_file(run.out("model.safetensors")) == read_file(whole.out("model.safetensors")))
      << "other weights";
  EXPECT_EQ(log_without_times(run.out()), log_without_times(whole.out()));
}

// Returns every file below a folder except the lock, with its bytes and modification time.
std::map<std::string, std::pair<std::string, int64_t>> contents(const std::string& folder) {
  std::map<std::string, std::pair<std::string, int64_t>> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().filename() == ".finetune.lock") continue;
    files[entry.path().string()] = {read_file(entry.path().string()),
                                    entry.last_write_time().time_since_epoch().count()};
  }
  return files;
}

std::vector<std::string> checkpoints_of(const TinyRun& run) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(run.out())) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("checkpoint-")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// A model after one update, which tests read and do not change.
const TinyRun& trained_once() {
  static const TinyRun run(small({{"max_steps", "1"}}));
  static const bool made = [] {
    expect_finishes(run);
    return true;
  }();
  EXPECT_TRUE(made);
  return run;
}

void expect_says_already_finished_and_changes_nothing(const TinyRun& run) {
  const auto before = contents(run.out());
  const ProcessResult again = run.train();
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("already finished"));
  EXPECT_TRUE(before == contents(run.out()));
}

// ---- Interruptions under every policy ----

struct Policy {
  std::string name;
  TinyRun::Keys keys;
};

class PolicyInterrupted : public ::testing::TestWithParam<Policy> {};

TEST_P(PolicyInterrupted, TwiceItEndsInTheSameWeightsAndLog) {
  const TinyRun whole(small(GetParam().keys));
  expect_finishes(whole);
  const TinyRun run(small(GetParam().keys));
  run.train_until(3);
  run.train_until(8);
  expect_finishes(run);
  EXPECT_EQ(trainer_state(run.out())["global_step"], 12);
  expect_same_result(run, whole);
}

const std::vector<Policy> kPolicies = {
    {"ReduceOnPlateau",
     {{"lr_scheduler_type", "reduce_lr_on_plateau"},
      {"lr_scheduler_kwargs", "{patience: 0, factor: 0.5, threshold: 0.5}"},
      {"eval_steps", "2"}}},
    {"Greedy",
     {{"lr_scheduler_type", "greedy"},
      {"lr_scheduler_kwargs", "{patience: 0, factor: 0.5, smooth: true, window_size: 3}"},
      {"eval_steps", "2"}}},
    {"SaveAndEvaluateEachEpoch",
     {{"save_strategy", "epoch"}, {"eval_strategy", "epoch"}, {"max_train_samples", "40"}}},
    {"SaveTheBest", {{"save_strategy", "best"}, {"metric_for_best_model", "eval_loss"}}},
    {"DropLast",
     {{"dataloader_drop_last", "true"}, {"max_train_samples", "46"}, {"eval_strategy", "epoch"}}},
    {"SmoothedSequentialLoggedEachEpoch",
     {{"label_smoothing_factor", "0.1"},
      {"train_sampling_strategy", "sequential"},
      {"max_train_samples", "45"},
      {"logging_strategy", "epoch"}}},
    {"GroupByLength",
     {{"train_sampling_strategy", "group_by_length"},
      {"line_by_line", "true"},
      {"eval_strategy", "no"}}},
    {"Packing",
     {{"packing", "true"},
      {"line_by_line", "true"},
      {"max_train_samples", "90"},
      {"max_seq_length", "128"},
      {"config_overrides",
       "{num_hidden_layers: 2, num_attention_heads: 2, hidden_size: 32, intermediate_size: 64, "
       "max_position_embeddings: 130, type_vocab_size: 1}"}}},
    {"Epochs", {{"max_steps", "-1"}, {"num_train_epochs", "2.4"}, {"max_train_samples", "37"}}},
};

INSTANTIATE_TEST_SUITE_P(Policies, PolicyInterrupted, ::testing::ValuesIn(kPolicies),
                         [](const auto& test) { return test.param.name; });

TEST(SaveOnlyModel, AnInterruptionStillSavesTheOptimizer) {
  const TinyRun::Keys keys = small({{"save_only_model", "true"}});
  const TinyRun whole(keys);
  expect_finishes(whole);
  const TinyRun run(keys);
  run.train_until(6);
  expect_finishes(run);
  expect_same_result(run, whole);
}

TEST(EvalOnStart, WorksAloneAndIsLoggedOnceHoweverTheRunIsStopped) {
  const TinyRun::Keys keys = small({{"eval_on_start", "true"}, {"eval_strategy", "no"}});
  const TinyRun whole(keys);
  expect_finishes(whole);
  const Json log = log_without_times(whole.out());
  int at_start = 0;
  for (const Json& entry : log) at_start += entry.contains("eval_loss") && entry["step"] == 0;
  EXPECT_EQ(at_start, 1);
  const TinyRun run(keys);
  run.train_until(1);
  expect_finishes(run);
  expect_same_result(run, whole);
}

TEST(AutomaticCheckpoint, StandsBesideTheLimitOfRegularOnes) {
  const TinyRun run(small({{"save_steps", "3"}, {"save_total_limit", "2"}}));
  run.train_until(7);
  EXPECT_EQ(checkpoints_of(run),
            (std::vector<std::string>{"checkpoint-3", "checkpoint-6", "checkpoint-7"}));
}

// ---- The best model ----

TEST(BestModelBetweenSaves, IsTheSameWhereAStopSavedAtItsStep) {
  const TinyRun::Keys keys = small({{"load_best_model_at_end", "true"},
                                    {"metric_for_best_model", "eval_loss"},
                                    // the loss falls, so the first is the best
                                    {"greater_is_better", "true"},
                                    {"eval_steps", "2"},
                                    {"save_steps", "4"}});
  const TinyRun whole(keys);
  expect_finishes(whole);
  int best = 0;
  double highest = 0;
  const Json state = trainer_state(whole.out());
  for (const Json& entry : state["log_history"]) {
    if (!entry.contains("eval_loss") || entry["eval_loss"].get<double>() <= highest) continue;
    highest = entry["eval_loss"].get<double>();
    best = entry["step"].get<int>();
  }
  ASSERT_EQ(best % 4, 2) << "the best evaluation is to lie between two saves";
  const TinyRun run(keys);
  run.train_until(best);
  expect_finishes(run);
  expect_same_result(run, whole);
}

TEST(BestModelMetric, ThatNoEvaluationGivesIsRefused) {
  const TinyRun run(small({{"metric_for_best_model", "f1"}}));
  const ProcessResult result = finetune({"config", "check", run.config()});
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.out + result.err, HasSubstr("metric_for_best_model"));
}

// ---- Starting again ----

TEST(EarlyStopped, IsFinishedWhereItIsStartedAgain) {
  for (const char* save : {"steps", "no"}) {
    SCOPED_TRACE(save);
    const TinyRun run(small({{"max_steps", "40"},
                             {"save_strategy", save},
                             {"eval_steps", "2"},
                             {"save_steps", "2"},
                             {"metric_for_best_model", "eval_loss"},
                             // the loss falls, so it never gets better
                             {"greater_is_better", "true"},
                             {"early_stopping_patience", "2"}}));
    const ProcessResult first = run.train();
    ASSERT_THAT(first.err, HasSubstr("early stopping"));
    // The first evaluation is the best, and two more follow.
    EXPECT_EQ(trainer_state(run.out())["global_step"].get<int>(), 6);
    expect_says_already_finished_and_changes_nothing(run);
  }
}

TEST(ResumePath, IsTakenOnceAndThenTheRunGoesOnFromItsOwn) {
  const TinyRun first(small());
  first.train_until(5);
  const TinyRun run(small({{"resume_from_checkpoint", first.out("checkpoint-4")}}));
  const ProcessResult begun = run.train({"--stop_at_step", "7"});
  ASSERT_EQ(begun.code, 75) << begun.err;
  EXPECT_THAT(begun.err, HasSubstr(first.out("checkpoint-4")));
  const ProcessResult second = run.train();
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_THAT(second.err, HasSubstr("checkpoint-7"));
  EXPECT_THAT(second.err, Not(HasSubstr(first.out("checkpoint-4"))));
  expect_says_already_finished_and_changes_nothing(run);
  expect_finishes(first);
  expect_same_result(run, first);
}

TEST(ValidationSplit, LetsEvaluationBeSwitchedOnLater) {
  TinyRun run(small({{"validation_file", ""},
                     {"validation_split_percentage", "20"},
                     {"eval_strategy", "no"},
                     {"eval_steps", ""},
                     {"do_eval", "false"}}));
  run.train_until(5);
  run.set({{"do_eval", "true"}});
  expect_finishes(run);
  EXPECT_TRUE(std::filesystem::exists(run.out("eval_results.json")));
}

TEST(Restarting, MovesNothingWhereAFileIsMissing) {
  const TinyRun run(small({{"max_steps", "2"}}));
  expect_finishes(run);
  const ProcessResult refused = run.train({"--restart", "--train_file", "gone.txt"});
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("gone.txt"));
  EXPECT_TRUE(std::filesystem::exists(run.out("model.safetensors")));
  EXPECT_FALSE(std::filesystem::exists(run.out("run.old-1")));
  const ProcessResult finished = run.train();
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_THAT(finished.err, HasSubstr("already finished"));
}

TEST(Restarting, IsNotBlockedByADamagedRecordOfTheFinishedRun) {
  const TinyRun run(small({{"max_steps", "2"}}));
  expect_finishes(run);
  for (const char* damage : {"{\"step\": ", "[1, 2]"}) {
    ASSERT_TRUE(std::filesystem::exists(run.out("finetune_state.json")));
    write_file(run.out("finetune_state.json"), damage);
    expect_finishes(run, {"--restart"});
  }
}

// ---- Commands ----

TEST(EvaluateBesideATraining, ShowsTheMetricsAndKeepsNone) {
  const TinyRun run(small());
  run.train_until(4);
  const int lock = ::open(run.out(".finetune.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_GE(lock, 0);
  ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
  const ProcessResult result = finetune({"evaluate", run.config(), "--checkpoint", "auto"});
  ::close(lock);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_GT(parse_json(result.out, "output")["eval_loss"].get<double>(), 0.0);
  EXPECT_THAT(result.err, HasSubstr("eval_results.json is not written"));
  EXPECT_FALSE(std::filesystem::exists(run.out("eval_results.json")));
}

TEST(FullOutput, IsAFailure) {
  const ProcessResult result =
      run({"sh", "-c", "exec \"$0\" config defaults > /dev/full", binary_path()});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("standard output cannot be written"));
}

TEST(PredictInput, IsNamedWithTheLineThatHasNoMask) {
  const TemporaryFolder folder;
  const std::string input = folder.write("lines.txt", "A <mask> light.\nNo light.\n");
  const ProcessResult line = finetune({"predict", trained_once().out(), "--input", input});
  EXPECT_EQ(line.code, 1);
  EXPECT_THAT(line.err, HasSubstr(input + ":2: has no mask"));
  const ProcessResult whole = finetune({"predict", trained_once().out(), "--input", folder.path()});
  EXPECT_EQ(whole.code, 1);
  EXPECT_THAT(whole.err, HasSubstr("is a folder"));
}

TEST(ModelConfig, WithAnOddTypeIsNoInternalError) {
  const TemporaryFolder folder;
  Json config = parse_json(read_file(trained_once().out("config.json")), "config.json");
  const TinyRun run(small({{"max_steps", "1"},
                           {"model_type", ""},
                           {"config_overrides", ""},
                           {"config_name", folder.path()}}));
  config["is_decoder"] = "yes";
  folder.write("config.json", config.dump());
  const ProcessResult text = run.train();
  EXPECT_EQ(text.code, 1);
  EXPECT_THAT(text.err, HasSubstr("config.json: "));
  EXPECT_THAT(text.err, HasSubstr("decoder"));
  EXPECT_THAT(text.err, Not(HasSubstr("internal error")));
  config["is_decoder"] = nullptr;
  folder.write("config.json", config.dump());
  expect_finishes(run);
}

}  // namespace
}  // namespace finetune::testing
