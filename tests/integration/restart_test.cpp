// SPDX-License-Identifier: MIT
// The main guarantee: however a run is stopped, the same command ends with the same bits.
#include <random>

#include "finetune/base/hash.h"
#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

// Number of tries, in case the machine is so busy that this test misses the moment it waits for.
constexpr int kTries = 10;

void start_over(const TinyRun& run) {
  std::filesystem::remove_all(run.out());
  std::filesystem::create_directories(run.out());
}

// Sends a signal at the moment that `reach` waits for.
template <class Reach>
ProcessResult signal_at(const TinyRun& run, Reach reach, int signal) {
  Process process(run.command(), {.environment = {}, .folder = "", .watch = run.out()});
  reach(process);
  process.send(signal);
  return process.finish();
}

// Returns false if the run finished first.
template <class Reach>
bool kill_at(const TinyRun& run, Reach reach) {
  const ProcessResult result = signal_at(run, reach, SIGKILL);
  EXPECT_TRUE(result.code == 128 + SIGKILL || result.code == 0) << result.code << result.err;
  return result.code != 0;
}

template <class Reach>
bool kill_surely_at(const TinyRun& run, Reach reach) {
  for (int i = 0; i < kTries; ++i) {
    if (kill_at(run, reach)) return true;
    start_over(run);
  }
  return false;
}

// Stops the run with a signal; everything must be saved, and `says` must be in the output.
template <class Reach>
ProcessResult stop_at(const TinyRun& run, Reach reach, int signal, const std::string& says = "") {
  ProcessResult result;
  for (int i = 0; i < kTries; ++i) {
    result = signal_at(run, reach, signal);
    if (result.code == 75 && result.err.find(says) != std::string::npos) return result;
    EXPECT_TRUE(result.code == 75 || result.code == 0) << result.code << result.err;
    start_over(run);
  }
  ADD_FAILURE() << "no try was stopped with '" << says << "'; the last said:\n" << result.err;
  return result;
}

ProcessResult stop_at_output(const TinyRun& run, const std::string& text, int signal,
                             const std::string& says = "") {
  return stop_at(
      run, [&](Process& p) { p.wait_for_output(text); }, signal, says);
}

TEST(Restart, EndsInTheSameBitsAfterKillsAtTwentyRandomMoments) {
  const TinyRun unbroken_run;
  const double whole = unbroken_run.train().seconds;
  const TinyRun run;
  std::mt19937 random(20240607);
  int kills = 0;
  for (int i = 0; i < 20; ++i) {
    const double share = static_cast<double>(random() % 1000) / 1000.0;
    kills += kill_at(run, [&](Process& p) { return p.wait_until(share * whole); });
  }
  // If the runs finish early, so that kills were missed, start again with another run.
  const TinyRun second;
  double longest = whole;
  for (int i = 0; i < 40 && kills < 12; ++i) {
    const double share = static_cast<double>(random() % 700) / 1000.0;
    if (kill_at(second, [&](Process& p) { return p.wait_until(share * longest); })) {
      ++kills;
    } else {
      start_over(second);
      longest *= 0.7;  // the machine was slower when the whole run was timed
    }
  }
  EXPECT_GE(kills, 12);
  expect_resumes_equal(run);
  expect_resumes_equal(second);
}

TEST(Restart, EndsInTheSameBitsAfterKillsInEveryPhase) {
  const TinyRun run;
  int kills = 0;
  const auto at_file = [&](const std::string& name, int times) {
    kills += kill_surely_at(run, [&](Process& p) { p.wait_for_file(name, times); });
  };
  const auto at_output = [&](const std::string& text) {
    kills += kill_surely_at(run, [&](Process& p) { p.wait_for_output(text); });
  };
  at_output("model: vocab_size");        // start-up
  at_output("tokenise train");           // data
  at_output("training 40 steps");        // before the first step
  at_output("train 3/40");               // a step
  at_file(".tmp-checkpoint-7", 1);       // a save that has just begun
  at_file("checkpoint-7", 2);            // a save that was just committed
  at_output("train 10/40");              // an evaluation
  at_file(".trash-checkpoint", 1);       // while an old checkpoint is deleted
  at_output("train 33/40");              // steps again
  at_file(".tmp-checkpoint-40", 1);      // the last save
  at_file(".tmp-config.json", 1);        // the final export begins
  at_file(".tmp-model.safetensors", 1);  // its weights
  at_file(".tmp-tokenizer.json", 1);     // its tokenizer
  EXPECT_GE(kills, 12);
  expect_resumes_equal(run);
}

TEST(Restart, LeavesNoStagingFilesBehindOnceItIsFinished) {
  const TinyRun run;
  kill_surely_at(run, [](Process& p) { p.wait_for_file(".tmp-checkpoint-14", 1); });
  kill_surely_at(run, [](Process& p) { p.wait_for_file(".tmp-model.safetensors", 1); });
  expect_resumes_equal(run);
  for (const auto& entry : std::filesystem::directory_iterator(run.out())) {
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr(".tmp")));
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr(".trash")));
  }
}

class StopSignal : public ::testing::TestWithParam<std::pair<int, std::string>> {};

TEST_P(StopSignal, SavesLeavesWith75AndResumesToTheSameBits) {
  const auto& [signal, name] = GetParam();
  const TinyRun run;
  const ProcessResult stopped = stop_at_output(run, "train 5/40", signal);
  EXPECT_THAT(stopped.err, HasSubstr("stopped by " + name + " at step"));
  EXPECT_THAT(stopped.err, HasSubstr("run the same command again"));
  expect_resumes_equal(run);
}

INSTANTIATE_TEST_SUITE_P(Signals, StopSignal,
                         ::testing::Values(std::pair(SIGTERM, "SIGTERM"),
                                           std::pair(SIGINT, "SIGINT"),
                                           std::pair(SIGUSR1, "SIGUSR1")),
                         [](const auto& test) { return test.param.second; });

TEST(Stop, AtStartUpLeavesWith75) {
  const TinyRun run;
  stop_at(
      run, [](Process& p) { p.wait_for_file(".finetune.lock"); }, SIGTERM);
  expect_resumes_equal(run);
}

TEST(Stop, WhileTokenisingLeavesWith75) {
  TinyRun run;
  const std::string text = read_file(kText + "lighthouse.txt");
  std::string long_text;
  for (int i = 0; i < 200; ++i) long_text += text;
  run.set({{"train_file", run.folder().write("long.txt", long_text)}});
  const ProcessResult result =
      stop_at_output(run, "model: vocab_size", SIGTERM, "stopped by SIGTERM while");
  EXPECT_THAT(result.err, Not(HasSubstr("training 40 steps")));
}

TEST(Stop, DuringAnEvaluationLeavesItToTheNextSession) {
  const std::string many = "[" + kText + "lighthouse.txt, " + kText + "lighthouse-valid.txt]";
  const TinyRun::Keys keys = {{"validation_file", many}, {"per_device_eval_batch_size", "1"}};
  const TinyRun whole(keys);
  ASSERT_EQ(whole.train().code, 0);
  const TinyRun run(keys);
  stop_at_output(run, "train 20/40", SIGTERM, "at step 20 ");
  const Json state = parse_json(read_file(run.out("checkpoint-20/finetune_state.json")), "state");
  EXPECT_TRUE(state["evaluation_pending"].get<bool>());
  EXPECT_EQ(run.train().code, 0);
  expect_equal(outcome_of(run), outcome_of(whole));
}

TEST(Stop, ByASecondSignalIsImmediate) {
  const TinyRun run(TinyRun::Keys{{"max_steps", "100000"}});
  Process process(run.command());
  ASSERT_TRUE(process.wait_for_output("train 3/"));
  process.send(SIGTERM);
  process.send(SIGINT);  // the kernel chooses the order of two pending signals
  const int code = process.finish().code;
  EXPECT_TRUE(code == 128 + SIGTERM || code == 128 + SIGINT) << code;
}

TEST(Stop, SavesEvenWhereSavingIsOff) {
  const TinyRun run(TinyRun::Keys{{"save_strategy", "no"}});
  stop_at_output(run, "train 5/40", SIGTERM);
  const ProcessResult resumed = run.train();
  EXPECT_EQ(resumed.code, 0);
  EXPECT_THAT(resumed.err, HasSubstr("resuming from"));
  EXPECT_TRUE(read_file(run.out("model.safetensors")) == unbroken().model);
  EXPECT_EQ(log_without_times(run.out()), unbroken().log);
}

// Returns every file below a folder with its bytes and modification time.
std::map<std::string, std::pair<std::string, int64_t>> snapshot(const std::string& folder) {
  std::map<std::string, std::pair<std::string, int64_t>> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    files[entry.path().string()] = {read_file(entry.path().string()),
                                    entry.last_write_time().time_since_epoch().count()};
  }
  return files;
}

TEST(FinishedRun, IsLeftAsItIs) {
  const TinyRun run;
  ASSERT_EQ(run.train().code, 0);
  auto before = snapshot(run.out());
  const ProcessResult again = run.train();
  EXPECT_EQ(again.code, 0);
  EXPECT_THAT(again.err, HasSubstr("already finished"));
  auto after = snapshot(run.out());
  before.erase(run.out(".finetune.lock"));  // empty both times, but locked in between
  after.erase(run.out(".finetune.lock"));
  EXPECT_TRUE(before == after);
}

TEST(FinishedRun, GoesOnWithANewScheduleWhereMoreStepsAreAsked) {
  TinyRun run;
  ASSERT_EQ(run.train().code, 0);
  run.set({{"max_steps", "50"}});
  const ProcessResult more = run.train();
  EXPECT_EQ(more.code, 0) << more.err;
  EXPECT_THAT(more.err, HasSubstr("the schedule is computed for the new total"));
  EXPECT_EQ(trainer_state(run.out())["global_step"], 50);
}

// The manifest as a version with another format would write it.
void make_newer(const std::string& path) {
  Json json = parse_json(read_file(path), path);
  json["format_version"] = 2;
  json.erase("checksum");
  json["checksum"] = hash_hex(json.dump());
  write_file(path, json.dump(1) + "\n");
}

// It is no damage: nothing is renamed, rebuilt or overwritten, here and in a mirror.
TEST(NewerVersion, OfARunIsRefusedAndNothingOfItIsChanged) {
  const TinyRun run;
  run.train_until(25);
  make_newer(run.out("checkpoint-25/manifest.json"));
  const ProcessResult refused = run.train();
  EXPECT_EQ(refused.code, 3);
  EXPECT_THAT(refused.err,
              HasSubstr("was written by a newer version of finetune (format version 2, this "
                        "one reads 1); update finetune"));
  EXPECT_TRUE(std::filesystem::exists(run.out("checkpoint-25")));
  EXPECT_FALSE(std::filesystem::exists(run.out("checkpoint-25.bad-1")));
  const ProcessResult status = finetune({"checkpoints", run.out()});
  EXPECT_THAT(status.out, HasSubstr("was written by a newer version"));

  const TinyRun mirrored(TinyRun::Keys{{"mirror_dir", run.out()}});
  const ProcessResult other = mirrored.train();
  EXPECT_EQ(other.code, 3) << other.err;
  EXPECT_THAT(other.err, HasSubstr("was written by a newer version"));

  const ProcessResult again = run.train({"--restart"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_TRUE(std::filesystem::exists(run.out("checkpoint-25.old-1")));
  expect_equal(outcome_of(run), unbroken());

  make_newer(run.out("manifest.json"));
  const ProcessResult finished = run.train();
  EXPECT_EQ(finished.code, 3);
  EXPECT_THAT(finished.err, HasSubstr("was written by a newer version"));
  EXPECT_TRUE(std::filesystem::exists(run.out("model.safetensors")));
}

TEST(FinishedRun, BeginsAgainWhereARestartIsAskedAndKeepsTheOldCheckpoints) {
  const TinyRun run;
  ASSERT_EQ(run.train().code, 0);
  const ProcessResult again = run.train({"--restart"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("renamed"));
  EXPECT_TRUE(std::filesystem::exists(run.out("checkpoint-40.old-1")));
  expect_equal(outcome_of(run), unbroken());
}

TEST(FinishedRun, IsNotTakenForTheOneThatARestartBegins) {
  const TinyRun run(TinyRun::Keys{{"report_to", "tensorboard"}});
  ASSERT_EQ(run.train().code, 0);
  const std::string old_weights = read_file(run.out("model.safetensors"));
  const ProcessResult again = run.train({"--restart", "--max_steps", "20", "--stop_at_step", "3"});
  EXPECT_EQ(again.code, 75) << again.err;
  EXPECT_THAT(again.err, HasSubstr("moved the model, results and logs of the former run to " +
                                   run.out("run.old-1")));
  const ProcessResult status = finetune({"status", run.out(), "--json"});
  EXPECT_EQ(status.code, 75) << status.err;
  const Json shown = parse_json(status.out, "status");
  EXPECT_EQ(shown["step"], 3);
  EXPECT_EQ(shown["max_steps"], 20);
  for (const char* name :
       {"model.safetensors", "all_results.json", "eval_results.json", "train_results.json"}) {
    EXPECT_FALSE(std::filesystem::exists(run.out(name))) << name;
  }
  EXPECT_THAT(read_file(run.out("metrics.jsonl")), Not(HasSubstr("\"step\":40")));
  // The old model is complete, with its results.
  EXPECT_TRUE(read_file(run.out("run.old-1/model.safetensors")) == old_weights);
  EXPECT_EQ(trainer_state(run.out("run.old-1"))["global_step"], 40);
  const ProcessResult old_answer =
      finetune({"predict", run.out("run.old-1"), "--text", "The <mask> was lit."});
  EXPECT_EQ(old_answer.code, 0) << old_answer.err;
  const ProcessResult answer = finetune({"predict", run.out(), "--text", "The <mask> was lit."});
  EXPECT_NE(answer.code, 0) << answer.out;

  EXPECT_EQ(run.train({"--max_steps", "20"}).code, 0);
  EXPECT_EQ(trainer_state(run.out())["global_step"], 20);
  EXPECT_EQ(finetune({"status", run.out()}).code, 0);
}

TEST(OtherModel, InTheOutputFolderIsRefusedAndMovedByARestart) {
  const TinyRun run(TinyRun::Keys{{"max_steps", "4"}, {"save_strategy", "no"}});
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::copy_file(kMaskedLm + "/" + name, run.out(name));
  }
  const std::string weights = read_file(run.out("model.safetensors"));
  for (const Arguments& more : {Arguments{}, Arguments{"--overwrite_output_dir"}}) {
    const ProcessResult refused = run.train(more);
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("output_dir: '" + run.out("model.safetensors") +
                                       "' belongs to a model that no run of finetune wrote"));
    EXPECT_TRUE(read_file(run.out("model.safetensors")) == weights);
  }
  EXPECT_EQ(run.train({"--restart"}).code, 0);
  EXPECT_TRUE(read_file(run.out("run.old-1/model.safetensors")) == weights);
  EXPECT_EQ(read_file(run.out("run.old-1/config.json")), read_file(kMaskedLm + "/config.json"));
  EXPECT_FALSE(read_file(run.out("model.safetensors")) == weights);
  EXPECT_EQ(run.train().code, 0) << "its own model is no other one";
}

const TinyRun::Keys kFourSteps = {
    {"max_steps", "4"}, {"eval_strategy", "\"no\""}, {"save_steps", "2"}};

TEST(ForeignFiles, ThatTheEndOfARunWouldOverwriteAreRefusedAndCopiedByARestart) {
  for (const char* name : {"config.json", "tokenizer.json", "generation_config.json",
                           "trainer_state.json", "train_results.json", "eval_results.json",
                           "manifest.json", "finetune_state.json", "metrics.jsonl"}) {
    const TinyRun run(kFourSteps);
    write_file(run.out(name), R"({"a": 1})");
    const ProcessResult refused = run.train();
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_THAT(refused.err,
                HasSubstr("output_dir: '" + run.out(name) + "' is a file that no run"));
    EXPECT_EQ(read_file(run.out(name)), R"({"a": 1})");
    const ProcessResult restarted = run.train({"--restart"});
    EXPECT_EQ(restarted.code, 0) << restarted.err;
    EXPECT_EQ(read_file(run.out("run.old-1/" + std::string(name))), R"({"a": 1})");
    EXPECT_EQ(run.train().code, 0) << name;
  }
}

TEST(ForeignFiles, AreRefusedInAMirrorToo) {
  TinyRun run(kFourSteps);
  const std::string mirror = run.folder() / "mirror";
  std::filesystem::create_directory(mirror);
  write_file(mirror + "/config.json", R"({"a": 1})");
  run.set({{"mirror_dir", mirror}});
  const ProcessResult refused = run.train();
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("mirror_dir: '" + mirror + "/config.json'"));
  EXPECT_EQ(read_file(mirror + "/config.json"), R"({"a": 1})");
  const ProcessResult restarted = run.train({"--restart"});
  EXPECT_EQ(restarted.code, 0) << restarted.err;
  EXPECT_EQ(read_file(mirror + "/run.old-1/config.json"), R"({"a": 1})");

  for (const char* name : {"README.md", "all_results.json", "manifest.json", "sessions.jsonl",
                           "metrics.jsonl", "finetune_state.json"}) {
    TinyRun other(kFourSteps);
    const std::string second = other.folder() / "mirror";
    std::filesystem::create_directory(second);
    write_file(second + "/" + name, R"({"a": 1})");
    other.set({{"mirror_dir", second}});
    EXPECT_EQ(other.train().code, 2) << name;
    EXPECT_EQ(read_file(second + "/" + name), R"({"a": 1})");
  }
}

TEST(ForeignFiles, AConfigOfTheUserIsRefusedNextToCheckpoints) {
  const TinyRun run(kFourSteps);
  run.train_until(2);
  write_file(run.out("config.json"), R"({"task": "mlm"})");
  const ProcessResult refused = run.train();
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_EQ(read_file(run.out("config.json")), R"({"task": "mlm"})");
  std::filesystem::remove(run.out("config.json"));
  EXPECT_EQ(run.train().code, 0);
}

TEST(ForeignFiles, ThatAreNoJsonAreRefusedOrKept) {
  for (const char* name :
       {"metrics.jsonl", "sessions.jsonl", "manifest.json", "finetune_state.json"}) {
    const TinyRun run(kFourSteps);
    write_file(run.out(name), "my notes\n");
    const ProcessResult refused = run.train();
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_THAT(refused.err,
                HasSubstr("output_dir: '" + run.out(name) + "' is a file that no run"));
    EXPECT_EQ(read_file(run.out(name)), "my notes\n");
  }
  for (const char* name : {"eval_results.json", "all_results.json"}) {
    TinyRun run(kFourSteps);
    run.set({{"do_eval", "true"}});
    write_file(run.out(name), "my notes\n");
    EXPECT_EQ(run.train().code, 0);
    EXPECT_EQ(read_file(run.out(std::string(name) + ".bad-1")), "my notes\n");
  }
}

TEST(ForeignFiles, AModelPutNextToCheckpointsIsRenamedAtTheEnd) {
  const TinyRun run(kFourSteps);
  run.train_until(2);
  write_file(run.out("model.safetensors"), "mine");
  write_file(run.out("tokenizer.json"), "{}");
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("is not as this run wrote it and is renamed to"));
  EXPECT_EQ(read_file(run.out("model.safetensors.bad-1")), "mine");
  EXPECT_EQ(read_file(run.out("tokenizer.json.bad-1")), "{}");
  const ProcessResult again = run.train();
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("already finished"));
}

std::vector<std::string> quarantined(const TinyRun& run) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(run.out())) {
    const std::string name = entry.path().filename();
    if (name.find(".bad-") != std::string::npos) names.push_back(name);
  }
  return names;
}

TEST(ForeignFiles, TheModelOfAnEarlierEndIsReplacedByALongerRun) {
  for (const bool has_logs : {true, false}) {
    TinyRun run(kFourSteps);
    EXPECT_EQ(run.train().code, 0);
    if (!has_logs) std::filesystem::remove(run.out("sessions.jsonl"));
    run.set({{"max_steps", "6"}});
    const ProcessResult result = run.train();
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(quarantined(run), IsEmpty()) << result.err;
  }
}

// As if it had been killed in its end.
TEST(ForeignFiles, TheModelOfAnInterruptedEndIsReplacedByALongerRun) {
  TinyRun run(kFourSteps);
  EXPECT_EQ(run.train().code, 0);
  for (const char* name : {"manifest.json", "finetune_state.json", "sessions.jsonl"}) {
    std::filesystem::remove(run.out(name));
  }
  run.set({{"max_steps", "6"}});
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(quarantined(run), IsEmpty()) << result.err;
}

TEST(ForeignFiles, EditsOfAFinishedModelSurviveALongerRun) {
  TinyRun run(kFourSteps);
  EXPECT_EQ(run.train().code, 0);
  for (const char* name : {"config.json", "tokenizer_config.json", "trainer_state.json"}) {
    write_file(run.out(name), read_file(run.out(name)) + " ");
  }
  write_file(run.out("model.safetensors"), "mine");
  const std::string card = read_file(run.out("README.md")) + "mine";
  write_file(run.out("README.md"), card);
  run.set({{"max_steps", "6"}});
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(quarantined(run),
              UnorderedElementsAre("config.json.bad-1", "tokenizer_config.json.bad-1",
                                   "trainer_state.json.bad-1", "model.safetensors.bad-1"))
      << result.err;
  EXPECT_EQ(read_file(run.out("model.safetensors.bad-1")), "mine");
  EXPECT_EQ(read_file(run.out("README.md")), card);
}

TEST(ForeignFiles, AResultOfTheUserIsKeptByAnEvaluation) {
  TinyRun run(kFourSteps);
  EXPECT_EQ(run.train().code, 0);
  const std::string folder = run.folder() / "results";
  std::filesystem::create_directory(folder);
  write_file(folder + "/eval_results.json", R"({"p": "precious"})");
  const ProcessResult result = finetune(
      {"evaluate", run.config(), "--model_name_or_path", run.out(), "--output_dir", folder});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(read_file(folder + "/eval_results.json.bad-1"), R"({"p": "precious"})");
}

TEST(ForeignFiles, AFolderOfTheUserNamedLikeACheckpointKeepsItsName) {
  const TinyRun run(kFourSteps);
  std::filesystem::create_directory(run.out("checkpoint-3"));
  write_file(run.out("checkpoint-3/notes.txt"), "mine");
  const ProcessResult refused = run.train();
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("'" + run.out("checkpoint-3") + "' has the name of a"));
  EXPECT_EQ(read_file(run.out("checkpoint-3/notes.txt")), "mine");
}

TEST(ForeignFiles, TheConfigurationItselfIsNeverOverwritten) {
  const TinyRun run(kFourSteps);
  std::string json = "{\"output_dir\": \".\", \"max_steps\": 2, \"model_type\": \"roberta\", ";
  json += "\"tokenizer_name\": \"" + tiny_tokenizer() + "\", \"train_file\": \"" + kText +
          "lighthouse.txt\"}";
  const std::string path = run.out("config.json");
  write_file(path, json);
  for (const Arguments& more : {Arguments{}, Arguments{"--restart"}, Arguments{"--dry_run"}}) {
    Arguments words = {"train", path};
    words.insert(words.end(), more.begin(), more.end());
    const ProcessResult refused = finetune(words);
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_THAT(refused.err,
                HasSubstr("holds this configuration under a name that the run writes"));
    EXPECT_EQ(read_file(path), json);
  }
}

TEST(Change, OfTheNumberOfWorkersChangesNoBit) {
  TinyRun run;
  run.set({{"dataloader_num_workers", "0"}});
  run.train_until(9);
  run.set({{"dataloader_num_workers", "4"}});
  run.train_until(23);
  run.set({{"dataloader_num_workers", "2"}});
  expect_resumes_equal(run);
}

TEST(Change, OfTheMicroBatchKeepsTheEffectiveBatchAndSaysSo) {
  TinyRun run({{"per_device_train_batch_size", "2"}, {"gradient_accumulation_steps", "4"}});
  run.train_until(12);
  run.set({{"per_device_train_batch_size", "4"}});
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the effective batch stays 8"));
  // The order of sums differs: close, but not equal.
  const Json log = log_without_times(run.out());
  ASSERT_EQ(log.size(), unbroken().log.size());
  for (size_t i = 0; i < log.size(); ++i) {
    if (!log[i].contains("loss")) continue;
    EXPECT_NEAR(log[i]["loss"].get<double>(), unbroken().log[i]["loss"].get<double>(), 1e-3);
  }
}

TEST(Change, OfTheMicroBatchToOneThatDoesNotDivideIsRefused) {
  TinyRun run;
  run.train_until(3);
  run.set({{"per_device_train_batch_size", "3"}});
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("does not divide the run's effective batch of 8"));
}

TEST(Change, OfTheLearningRateIsAnnounced) {
  TinyRun run;
  run.train_until(3);
  run.set({{"learning_rate", "5e-4"}});
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("learning_rate 0.001 -> 0.0005 from step 3"));
}

// Changes keys of the run after its third step; the message must contain all of `parts`.
void expect_refused(TinyRun& run, const TinyRun::Keys& change,
                    const std::vector<std::string>& parts) {
  run.set(change);
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, 2) << result.err;
  for (const std::string& part : parts) EXPECT_THAT(result.err, HasSubstr(part));
  EXPECT_THAT(result.err, HasSubstr("--restart"));
}

TEST(Change, OfWhatTheRunIsIsRefusedWithBothValues) {
  TinyRun run;
  run.train_until(3);
  expect_refused(run, {{"seed", "7"}}, {"seed is 7", "began with 42"});
  expect_refused(run, {{"seed", ""}, {"max_seq_length", "16"}},
                 {"max_seq_length is 16", "began with 32"});
  const std::string other =
      run.folder().write("other.txt", read_file(kText + "lighthouse.txt") + "One more line.\n");
  expect_refused(run, {{"max_seq_length", "32"}, {"train_file", other}},
                 {"training data", "then", "now"});
  const std::string tokenizer = run.folder() / "tokenizer";
  ASSERT_EQ(finetune({"tokenizer", "train", "--type", "byte_level_bpe", "--vocab_size", "300",
                      "--output", tokenizer, kText + "lighthouse-valid.txt"})
                .code,
            0);
  expect_refused(run, {{"train_file", kText + "lighthouse.txt"}, {"tokenizer_name", tokenizer}},
                 {"tokenizer", "then", "now"});
  const std::string moved = run.folder().write("moved.txt", read_file(kText + "lighthouse.txt"));
  run.set({{"tokenizer_name", tiny_tokenizer()}, {"train_file", moved}});  // the same content
  expect_resumes_equal(run);
}

TEST(TwoProcesses, InOneFolderTheSecondSaysWhoHoldsIt) {
  const TinyRun run(TinyRun::Keys{{"max_steps", "100000"}});
  Process first(run.command());
  ASSERT_TRUE(first.wait_for_output("train 1/"));
  const ProcessResult second = run.train();
  EXPECT_EQ(second.code, 5) << second.err;
  EXPECT_THAT(second.err, HasSubstr("is in use by process"));
  first.send(SIGTERM);
  EXPECT_EQ(first.finish().code, 75);
}

void flip_a_byte(const std::string& path) {
  std::string bytes = read_file(path);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x10);
  write_file(path, bytes);
}

// Damages the newest checkpoint (14) of a run that stopped there.
void expect_falls_back(const std::function<void(const std::string&)>& damage,
                       const std::string& reason) {
  const TinyRun run;
  run.train_until(14);
  damage(run.out("checkpoint-14"));
  const ProcessResult result = run.train({"--stop_at_step", "16"});
  EXPECT_EQ(result.code, 75);
  EXPECT_THAT(result.err, HasSubstr("checkpoint-14 is not used: "));
  EXPECT_THAT(result.err, HasSubstr(reason));
  EXPECT_THAT(result.err, HasSubstr("checkpoint-7 at step 7"));
  EXPECT_TRUE(std::filesystem::exists(run.out("checkpoint-14.bad-1")));
  expect_resumes_equal(run);
}

TEST(DamagedCheckpoint, WithAFlippedBitIsPassedOver) {
  expect_falls_back([](const std::string& path) { flip_a_byte(path + "/model.safetensors"); },
                    "model.safetensors");
}

TEST(DamagedCheckpoint, WithATruncatedOptimizerIsPassedOver) {
  expect_falls_back(
      [](const std::string& path) { std::filesystem::resize_file(path + "/optimizer.pt", 1000); },
      "optimizer.pt has 1000 bytes");
}

TEST(DamagedCheckpoint, WithoutItsTrainerStateIsPassedOver) {
  expect_falls_back(
      [](const std::string& path) { std::filesystem::remove(path + "/trainer_state.json"); },
      "trainer_state.json is missing");
}

TEST(DamagedCheckpoint, IsNeverFollowedByASilentBeginning) {
  const TinyRun run;
  run.train_until(14);
  flip_a_byte(run.out("checkpoint-14/model.safetensors"));
  flip_a_byte(run.out("checkpoint-7/optimizer.pt"));
  for (int start = 0; start < 3; ++start) {
    const ProcessResult result = run.train();
    EXPECT_EQ(result.code, 3) << result.err;
    EXPECT_THAT(result.err, HasSubstr("--restart"));
  }
  expect_resumes_equal(run, {"--restart"});
}

const TinyRun::Keys kBestModel = {{"load_best_model_at_end", "true"},
                                  {"metric_for_best_model", "eval_loss"},
                                  {"learning_rate", "3e-2"},
                                  {"max_steps", "60"},
                                  {"eval_steps", "5"},
                                  {"save_steps", "5"},
                                  {"save_total_limit", "2"}};

TEST(BestModel, IsTheOneThatIsExportedAndTheSameAfterAnInterruption) {
  const TinyRun whole(kBestModel);
  ASSERT_EQ(whole.train().code, 0);
  const Json state = trainer_state(whole.out());
  const int best = state["best_global_step"].get<int>();
  EXPECT_TRUE(read_file(whole.out("model.safetensors")) ==
              read_file(whole.out("checkpoint-" + std::to_string(best) + "/model.safetensors")));
  double lowest = 1e9;
  for (const Json& entry : state["log_history"]) {
    if (entry.contains("eval_loss")) lowest = std::min(lowest, entry["eval_loss"].get<double>());
  }
  EXPECT_EQ(state["best_metric"].get<double>(), lowest);

  const TinyRun run(kBestModel);
  run.train_until(13);
  stop_at_output(run, "train 31/60", SIGTERM);
  EXPECT_EQ(run.train().code, 0);
  EXPECT_TRUE(read_file(run.out("model.safetensors")) == read_file(whole.out("model.safetensors")));
  EXPECT_EQ(log_without_times(run.out()), log_without_times(whole.out()));
}

TEST(EarlyStopping, StopsAtTheSameStepAfterAnInterruption) {
  TinyRun::Keys keys = kBestModel;
  keys["early_stopping_patience"] = "2";
  keys["early_stopping_threshold"] = "1.0";  // more than the loss falls within five updates
  const TinyRun whole(keys);
  const ProcessResult result = whole.train();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("early stopping"));
  const int last = trainer_state(whole.out())["global_step"].get<int>();
  EXPECT_LT(last, 60);

  const TinyRun run(keys);
  run.train_until(last - 3);
  EXPECT_EQ(run.train().code, 0);
  EXPECT_EQ(trainer_state(run.out())["global_step"].get<int>(), last);
  EXPECT_TRUE(read_file(run.out("model.safetensors")) == read_file(whole.out("model.safetensors")));
  EXPECT_EQ(log_without_times(run.out()), log_without_times(whole.out()));
}

}  // namespace
}  // namespace finetune::testing
