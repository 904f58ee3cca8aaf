// SPDX-License-Identifier: MIT
// Several processes: the same run, the same samples, the same result.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>

#include "integration/launched.h"
#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kSteps = 12;
const TinyRun::Keys kExact = {{"full_determinism", "true"}};

// 8 samples per step in 4 micro-batches, which 1, 2 and 4 processes divide among themselves. The
// last update of the epoch and the last batch of an evaluation are smaller.
class SharedRun : public TinyRun {
 public:
  explicit SharedRun(const Keys& keys = {}) {
    Keys all = {{"per_device_train_batch_size", "2"},
                {"effective_batch_size", "8"},
                {"gradient_accumulation_steps", ""},
                {"max_steps", std::to_string(kSteps)},
                {"eval_steps", "6"},
                {"save_steps", "4"},
                {"num_train_epochs", "9"},
                {"max_train_samples", "44"},
                {"dataloader_num_workers", "0"}};
    for (const auto& [key, value] : keys) all[key] = value;
    set(all);
  }
};

Arguments processes(int count, const Arguments& more = {}) {
  Arguments words = {"--num_processes", std::to_string(count)};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

struct Result {
  std::string model = {};
  std::string optimizer = {};
  std::vector<double> losses = {};
  std::vector<double> eval_losses = {};
  std::vector<double> accuracies = {};
};

// Options of a process that reports new checkpoints.
ProcessOptions watching(const TinyRun& run, const Environment& environment = {}) {
  ProcessOptions options;
  options.environment = environment;
  options.watch = run.out();
  return options;
}

ProcessOptions with(const Environment& environment) {
  ProcessOptions options;
  options.environment = environment;
  return options;
}

Result result_of(const TinyRun& run) {
  Result result{
      .model = read_file(run.out("model.safetensors")),
      .optimizer = read_file(run.out("checkpoint-" + std::to_string(kSteps) + "/optimizer.pt"))};
  const Json state = trainer_state(run.out());
  for (const Json& entry : state["log_history"]) {
    if (entry.contains("loss")) result.losses.push_back(entry["loss"].get<double>());
    if (entry.contains("eval_loss")) result.eval_losses.push_back(entry["eval_loss"].get<double>());
    if (entry.contains("eval_accuracy")) {
      result.accuracies.push_back(entry["eval_accuracy"].get<double>());
    }
  }
  EXPECT_EQ(result.losses.size(), static_cast<size_t>(kSteps));
  return result;
}

Result finished(const TinyRun& run, const Arguments& more = {}) {
  const ProcessResult end = run.train(more);
  EXPECT_EQ(end.code, 0) << end.err;
  return result_of(run);
}

void expect_same_bits(const Result& actual, const Result& expected) {
  EXPECT_TRUE(actual.model == expected.model) << "other weights";
  EXPECT_TRUE(actual.optimizer == expected.optimizer) << "another optimizer state";
  EXPECT_EQ(actual.losses, expected.losses);
  EXPECT_EQ(actual.eval_losses, expected.eval_losses);
  EXPECT_EQ(actual.accuracies, expected.accuracies);
}

const Result& alone() {
  static const Result result = finished(SharedRun());
  return result;
}

const Result& deterministic_alone() {
  static const Result result = finished(SharedRun(kExact));
  return result;
}

// The result of an uninterrupted run in two processes.
const Result& in_two() {
  static const Result result = finished(SharedRun(), processes(2));
  return result;
}

// Returns the addresses that a process listens on, as /proc/net/tcp shows them.
std::vector<std::string> listening(pid_t process) {
  std::set<std::string> sockets;
  const std::string folder = "/proc/" + std::to_string(process);
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.starts_with("socket:[")) sockets.insert(target.substr(8, target.size() - 9));
  }
  std::vector<std::string> addresses;
  for (const char* table : {"/net/tcp", "/net/tcp6"}) {
    std::ifstream file(folder + table);
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::vector<std::string> fields;
      for (std::string word; words >> word;) fields.push_back(word);
      const bool listens = fields.size() > 9 && fields[3] == "0A";
      if (listens && sockets.count(fields[9]) > 0) addresses.push_back(fields[1]);
    }
  }
  return addresses;
}

TEST(Processes, TrainWhatOneProcessTrains) {
  for (const int count : {2, 4}) {
    const SharedRun run;
    const ProcessResult end = run.train(processes(count));
    ASSERT_EQ(end.code, 0) << end.err;
    EXPECT_THAT(end.err, HasSubstr("x " + std::to_string(count) + " processes"));
    const Result result = result_of(run);
    for (size_t i = 0; i < result.losses.size(); ++i) {
      EXPECT_NEAR(result.losses[i], alone().losses[i], 1e-5) << count << " at step " << i + 1;
    }
    ASSERT_EQ(result.eval_losses.size(), alone().eval_losses.size());
    for (size_t i = 0; i < result.eval_losses.size(); ++i) {
      EXPECT_NEAR(result.eval_losses[i], alone().eval_losses[i], 1e-5);
      EXPECT_NEAR(result.accuracies[i], alone().accuracies[i], 0.02);
    }
  }
}

TEST(Processes, EndInTheSameBitsForAnyNumberWithFullDeterminism) {
  for (const int count : {2, 4}) {
    SCOPED_TRACE(count);
    const SharedRun run(kExact);
    expect_same_bits(finished(run, processes(count)), deterministic_alone());
  }
}

// Also tests more threads than processors, because the number of threads must not change the bits.
TEST(Processes, EndInTheSameBitsForAnyNumberOfThreadsWithFullDeterminism) {
  for (const int threads : {1, 2, 3}) {
    for (const int count : {1, 2}) {
      SCOPED_TRACE(std::to_string(count) + " processes, " + std::to_string(threads) + " threads");
      const SharedRun run(kExact);
      const ProcessResult end =
          run.train(processes(count), with({{"OMP_NUM_THREADS", std::to_string(threads)}}));
      ASSERT_EQ(end.code, 0) << end.err;
      expect_same_bits(result_of(run), deterministic_alone());
    }
  }
}

TEST(Processes, MayChangeTheirThreadsBetweenSessions) {
  const SharedRun run(kExact);
  const auto until = [&](int count, const char* threads, int step) {
    const ProcessResult end = run.train(processes(count, {"--stop_at_step", std::to_string(step)}),
                                        with({{"OMP_NUM_THREADS", threads}}));
    EXPECT_EQ(end.code, 75) << end.err;
    EXPECT_THAT(end.err, Not(HasSubstr("not bit-exact")));
  };
  until(1, "2", 3);
  until(2, "1", 5);
  until(1, "3", 9);
  expect_same_bits(finished(run, processes(2)), deterministic_alone());
}

TEST(Processes, SayWhereFullDeterminismLeavesThreadsIdle) {
  SharedRun run(kExact);
  run.set({{"max_steps", "2"}, {"effective_batch_size", "2"}});
  const ProcessResult end = run.train({}, with({{"OMP_NUM_THREADS", "2"}}));
  ASSERT_EQ(end.code, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("1 of 2 threads compute"));
}

// Rows with several packed samples are divided like rows with one sample.
TEST(Processes, EndInTheSameBitsWithPackedRows) {
  TinyRun::Keys keys = kExact;
  keys["packing"] = "true";
  keys["line_by_line"] = "true";
  keys["max_train_samples"] = "150";
  const Result expected = finished(SharedRun(keys));
  for (const int count : {2, 4}) {
    expect_same_bits(finished(SharedRun(keys), processes(count)), expected);
  }
}

TEST(Processes, MayChangeTheirNumberBetweenSessions) {
  SharedRun run(kExact);
  run.set({{"effective_batch_size", ""}, {"gradient_accumulation_steps", "4"}});
  const auto until = [&](int count, int step) {
    return run.train(processes(count, {"--stop_at_step", std::to_string(step)}));
  };
  EXPECT_EQ(until(1, 3).code, 75);
  EXPECT_EQ(until(4, 5).code, 75);
  const ProcessResult again = until(2, 8);
  EXPECT_EQ(again.code, 75);
  EXPECT_THAT(again.err, HasSubstr("processes 4 -> 2; the run keeps its 4 logical shards a step"));
  EXPECT_THAT(again.err, Not(HasSubstr("not bit-exact")));
  EXPECT_THAT(again.err, HasSubstr("gradient_accumulation_steps is 2 now"));
  expect_same_bits(finished(run, processes(4)), deterministic_alone());
}

TEST(Processes, SayWhatAnotherNumberChangesWithoutFullDeterminism) {
  const SharedRun run;
  EXPECT_EQ(run.train({"--stop_at_step", "5"}).code, 75);
  const ProcessResult end = run.train(processes(2));
  ASSERT_EQ(end.code, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("not bit-exact from here: processes 1 -> 2"));
  EXPECT_NEAR(result_of(run).losses.back(), alone().losses.back(), 1e-5);
}

// Only the debug log shows which buckets were complete before the end of the backward pass. The
// time at which their sums start depends on the machine; tests/distributed/bucket_sum_test tests
// the order.
TEST(Processes, SumGradientsBesideTheBackwardPass) {
  const SharedRun run(TinyRun::Keys{{"log_level", "debug"},
                                    {"ddp_bucket_cap_mb", "1"},
                                    {"config_overrides",
                                     "{num_hidden_layers: 3, num_attention_heads: 2, hidden_size: "
                                     "128, intermediate_size: 512, max_position_embeddings: 34, "
                                     "type_vocab_size: 1}"},
                                    {"max_steps", "2"},
                                    {"eval_strategy", "no"}});
  const ProcessResult end = run.train(processes(2));
  ASSERT_EQ(end.code, 0) << end.err;
  const size_t line = end.err.find("step 2: gradients of all processes");
  ASSERT_NE(line, std::string::npos) << end.err;
  std::istringstream text(end.err.substr(line, end.err.find('\n', line) - line));
  std::string rest;
  std::getline(text, rest);
  const double over = std::stod(rest.substr(rest.find("over at ") + 8));
  const size_t first = rest.find("done): ");
  const double ready = std::stod(rest.substr(rest.find(": ", first + 7) + 2));
  EXPECT_LT(ready, over) << rest;
  EXPECT_GE(std::ranges::count(rest.substr(first), ';'), 2) << rest;
}

TEST(Processes, SendGradientsInTwoBytesOnRequest) {
  for (const char* hook : {"fp16", "bf16"}) {
    const SharedRun run(TinyRun::Keys{{"ddp_comm_hook", hook}});
    const Result result = finished(run, processes(2));
    EXPECT_FALSE(result.model == in_two().model) << hook;
    for (size_t i = 0; i < result.losses.size(); ++i) {
      EXPECT_NEAR(result.losses[i], in_two().losses[i], 5e-3) << hook << " at step " << i + 1;
    }
  }
}

TEST(Processes, RefuseTwoBytesWithFullDeterminism) {
  SharedRun run(kExact);
  run.set({{"ddp_comm_hook", "fp16"}});
  const ProcessResult end = run.train(processes(2));
  EXPECT_EQ(end.code, 2);
  EXPECT_THAT(end.err, HasSubstr("full_determinism sums gradients as they are"));
}

TEST(Processes, SayWhatEachAccumulates) {
  SharedRun run(kExact);
  EXPECT_EQ(run.train({"--stop_at_step", "3"}).code, 75);
  const ProcessResult two = run.train(processes(2, {"--stop_at_step", "5"}));
  EXPECT_THAT(two.err, HasSubstr("batch stays 8: gradient_accumulation_steps is 2 now"));
  run.set({{"per_device_train_batch_size", "1"}});
  const ProcessResult again = run.train(processes(2, {"--stop_at_step", "6"}));
  EXPECT_THAT(again.err, HasSubstr("batch stays 8: gradient_accumulation_steps is 4 now"));
  EXPECT_THAT(again.err, Not(HasSubstr("changed: gradient_accumulation_steps")));
  EXPECT_THAT(run.train(processes(2)).err, Not(HasSubstr("gradient_accumulation_steps")));
}

TEST(Processes, TakeTheMeanOfTheirOwnMeansOnRequest) {
  const TinyRun::Keys own_means = {{"average_tokens_across_devices", "false"}};
  const Result result = finished(SharedRun(own_means), processes(2));
  EXPECT_NE(result.losses, in_two().losses);
  for (size_t i = 0; i < result.losses.size(); ++i) {
    EXPECT_NEAR(result.losses[i], in_two().losses[i], 0.5) << "at step " << i + 1;
  }
  expect_same_bits(finished(SharedRun(own_means)), alone());
}

TEST(Processes, DivideOptimizerStatesWithoutAnotherBit) {
  const TinyRun::Keys techniques[] = {
      {},
      {{"optim", "adamw_8bit"}, {"param_dtype", "bfloat16+int8"}},
      {{"optim", "adafactor"}, {"max_grad_norm", "0"}},
      {{"optim", "sgd"}, {"optim_args", "momentum=0.9"}, {"grad_accum_dtype", "bfloat16"}},
  };
  for (const TinyRun::Keys& keys : techniques) {
    const Result undivided = keys.empty() ? in_two() : finished(SharedRun(keys), processes(2));
    SharedRun run(keys);
    run.set({{"zero_stage", "1"}});
    expect_same_bits(finished(run, processes(2)), undivided);
  }
}

// Files of divided states equal those of one process: more processes, fewer, or undivided ones can
// resume.
TEST(Processes, GoOnFromDividedStatesInAnyNumber) {
  SharedRun run(kExact);
  run.set({{"zero_stage", "1"}, {"save_only_model", "false"}});
  EXPECT_EQ(run.train(processes(4, {"--stop_at_step", "3"})).code, 75);
  EXPECT_EQ(run.train(processes(2, {"--stop_at_step", "5"})).code, 75);
  EXPECT_EQ(run.train({"--stop_at_step", "7"}).code, 75);
  EXPECT_EQ(run.train(processes(2, {"--zero_stage", "0", "--stop_at_step", "9"})).code, 75);
  expect_same_bits(finished(run, processes(4)), deterministic_alone());
}

TEST(Processes, FindWhatIsNoNumberInAnothersStates) {
  SharedRun run(TinyRun::Keys{{"zero_stage", "1"}});
  run.set({{"divergence_policy", "rollback"}});
  const ProcessResult end = run.train(processes(2), with({{"FINETUNE_TEST_POISON", "moment@6"}}));
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("contains NaN or Inf"));
  EXPECT_THAT(end.err, HasSubstr("2 rollbacks"));
}

TEST(Processes, SaveOnceAtOneStepWhereASignalReachesOneOfThem) {
  for (const size_t rank : {0U, 1U}) {
    SCOPED_TRACE(rank);
    const SharedRun run;
    Process process(run.command(processes(2)), watching(run));
    ASSERT_TRUE(process.wait_for_file("checkpoint-4"));
    ::kill(children_of(process.id()).at(rank), SIGTERM);
    const ProcessResult end = process.finish();
    EXPECT_EQ(end.code, 75) << end.err;
    EXPECT_THAT(end.err, HasSubstr("with everything saved"));
    expect_same_bits(finished(run, processes(2)), in_two());
  }
}

TEST(Processes, PassASignalOnToAll) {
  const SharedRun run;
  Process process(run.command(processes(2)), watching(run));
  ASSERT_TRUE(process.wait_for_file("checkpoint-4"));
  process.send(SIGTERM);
  const ProcessResult end = process.finish();
  EXPECT_EQ(end.code, 75) << end.err;
  EXPECT_THAT(end.err, HasSubstr("with everything saved"));
  expect_same_bits(finished(run, processes(2)), in_two());
}

TEST(Processes, LeaveWithinSecondsWhereOneIsKilled) {
  for (const int rank : {0, 1}) {
    SCOPED_TRACE(rank);
    const SharedRun run;
    Process process(run.command(processes(2)), watching(run));
    ASSERT_TRUE(process.wait_for_file("checkpoint-4"));
    ::kill(children_of(process.id()).at(static_cast<size_t>(rank)), SIGKILL);
    const auto start = std::chrono::steady_clock::now();
    const ProcessResult end = process.finish();
    // Within 3 s on an idle machine; detection by heartbeats alone would take 45 s.
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
    EXPECT_EQ(end.code, 75) << end.err;
    const std::string message = "error: rank " + std::to_string(rank) + " was ended by signal 9";
    EXPECT_THAT(end.err, HasSubstr(message));
    EXPECT_EQ(end.err.find("error:"), end.err.rfind("error:")) << end.err;
    expect_same_bits(finished(run, processes(2)), in_two());
  }
}

TEST(Processes, LeaveWhereOneHangs) {
  const SharedRun run;
  Process process(run.command(processes(2)), watching(run, {{"FINETUNE_TEST_HANG_SECONDS", "2"}}));
  ASSERT_TRUE(process.wait_for_file("checkpoint-4"));
  ::kill(children_of(process.id()).at(1), SIGSTOP);
  const ProcessResult end = process.finish(30);
  EXPECT_EQ(end.code, 75) << end.err;
  EXPECT_THAT(end.err, HasSubstr("error: rank 1 has shown no sign of life for 2 s"));
  EXPECT_EQ(end.err.find("error:"), end.err.rfind("error:")) << end.err;
  expect_same_bits(finished(run, processes(2)), in_two());
}

TEST(Processes, ListenOnTheLoopbackInterfaceAloneAndASingleOneNowhere) {
  for (const int count : {1, 2}) {
    const SharedRun run;
    Process process(run.command(processes(count)), watching(run));
    ASSERT_TRUE(process.wait_for_file("checkpoint-4"));
    std::vector<pid_t> members = children_of(process.id());
    members.push_back(process.id());
    std::vector<std::string> all;
    for (const pid_t member : members) {
      const std::vector<std::string> addresses = listening(member);
      all.insert(all.end(), addresses.begin(), addresses.end());
    }
    EXPECT_EQ(process.finish().code, 0);
    EXPECT_EQ(all.empty(), count == 1);
    for (const std::string& address : all) EXPECT_THAT(address, HasSubstr("0100007F:"));
  }
}

TEST(Processes, TakeTheirPositionsFromWhatSlurmSets) {
  const SharedRun run(kExact);
  const std::string port = free_port();
  Process second(run.command(), with(slurm_task(1, port)));
  const ProcessResult first = run.train({}, with(slurm_task(0, port)));
  EXPECT_EQ(first.code, 0) << first.err;
  const ProcessResult other = second.finish();
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_EQ(other.err, "");
  expect_same_bits(result_of(run), deterministic_alone());
}

TEST(Processes, SayForWhomTheyWaitAndLeaveAtASignal) {
  const SharedRun run;
  const std::string port = free_port();
  Process first(run.command(), with(slurm_task(0, port)));
  Process second(run.command(), with(slurm_task(1, free_port())));
  EXPECT_TRUE(first.wait_for_output("waiting for rank 1 of 2"));
  EXPECT_TRUE(second.wait_for_output("waiting for rank 0 at 127.0.0.1:"));
  const ProcessResult again = finetune::testing::run(run.command(), with(slurm_task(0, port)));
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr("another process says that it is rank 0 of this job too"));
  for (Process* process : {&first, &second}) {
    process->send(SIGTERM);
    const ProcessResult end = process->finish(2);
    EXPECT_EQ(end.code, 75) << end.err;
    EXPECT_THAT(end.err, HasSubstr("stopped by SIGTERM while waiting for the other processes"));
  }
}

TEST(Processes, SayEachErrorOnceAndGiveItsExitCode) {
  const SharedRun run(TinyRun::Keys{{"train_file", "/nowhere/corpus.txt"}});
  const ProcessResult end = run.train(processes(2));
  EXPECT_EQ(end.code, 2) << end.err;
  EXPECT_THAT(end.err, HasSubstr("rank "));
  EXPECT_EQ(end.err.find("error:"), end.err.rfind("error:")) << end.err;
}

// One message before anything is loaded and any process is started. The test uses a separate user
// who may start only a few processes and threads.
TEST(Processes, SayTheLimitOfProcessesOnce) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const SharedRun run;
  namespace fs = std::filesystem;
  fs::permissions(fs::path(run.out()).parent_path(), fs::perms::all);
  for (const char* limit : {"3", "8", "12"}) {
    Arguments words = {"setpriv", "--reuid=54321", "--clear-groups", "prlimit",
                       std::string("--nproc=") + limit};
    for (const std::string& word : run.command(processes(4))) words.push_back(word);
    const ProcessResult end = finetune::testing::run(words);
    if (end.code > 125) GTEST_SKIP() << end.err;
    EXPECT_EQ(end.code, 1) << end.err;
    EXPECT_THAT(end.err, HasSubstr("the system starts no more processes and threads"));
    EXPECT_EQ(end.err.find("error:"), end.err.rfind("error:")) << end.err;
  }
}

TEST(Processes, RefuseABatchThatTheyCannotDivide) {
  const SharedRun run;
  const ProcessResult end = run.train(processes(3));
  EXPECT_EQ(end.code, 2);
  EXPECT_THAT(end.err, HasSubstr("8 samples cannot be divided among 3 processes that take 2 at a "
                                 "time (per_device_train_batch_size); choose a multiple of 6"));
  EXPECT_THAT(end.err, Not(HasSubstr("rank")));
  EXPECT_THAT(end.err, Not(HasSubstr("model")));
}

TEST(Processes, RefuseANumberThatIsNotTheLaunchers) {
  const SharedRun run;
  const ProcessResult end = run.train(
      processes(3), with({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"}}));
  EXPECT_EQ(end.code, 2);
  EXPECT_THAT(end.err, HasSubstr("torchrun started 2 processes, which is not the 3"));
  const Environment single = {{"RANK", "0"}, {"WORLD_SIZE", "1"}};
  const ProcessResult two = run.train(processes(2), with(single));
  EXPECT_EQ(two.code, 2);
  EXPECT_THAT(two.err, HasSubstr("torchrun started 1 process, which is not the 2"));
  EXPECT_EQ(run.train({"--num_processes", "auto", "--stop_at_step", "1"}, with(single)).code, 75);
}

}  // namespace
}  // namespace finetune::testing
