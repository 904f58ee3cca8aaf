// SPDX-License-Identifier: MIT
// No checkpoint ever contains NaN or Inf, and each policy does what it promises, however the run is
// stopped in between.
#include <cmath>
#include <cstring>

#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const TinyRun::Keys kSmallRun = {{"max_steps", "10"},
                                 {"save_steps", "3"},
                                 {"save_total_limit", ""},
                                 {"eval_strategy", "no"},
                                 {"validation_file", ""},
                                 {"dataloader_num_workers", "0"},
                                 {"gradient_accumulation_steps", "1"},
                                 {"per_device_train_batch_size", "4"}};

ProcessOptions poison(const std::string& text) {
  return {.environment = {{"FINETUNE_TEST_POISON", text}}, .folder = "", .watch = ""};
}

Json state_of(const std::string& folder) {
  const std::string path = folder + "/finetune_state.json";
  return parse_json(read_file(path), path);
}

// Whether every float32 in a safetensors file's data is finite.
bool holds_numbers_alone(const std::string& path) {
  const std::string content = read_file(path);
  uint64_t header = 0;
  std::memcpy(&header, content.data(), sizeof(header));
  for (size_t at = sizeof(header) + header; at + 4 <= content.size(); at += 4) {
    float value = 0.0F;
    std::memcpy(&value, content.data() + at, sizeof(value));
    if (!std::isfinite(value)) return false;
  }
  return true;
}

int expect_numbers_in_checkpoints(const TinyRun& run) {
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(run.out())) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("checkpoint-")) continue;
    ++seen;
    EXPECT_TRUE(holds_numbers_alone(entry.path() / "model.safetensors")) << name;
  }
  return seen;
}

// Returns the log without total_flos, because skipped updates are not computed.
Json log_of(const TinyRun& run) {
  Json entries = log_without_times(run.out());
  for (Json& entry : entries) entry.erase("total_flos");
  return entries;
}

struct PoisonedCase {
  std::string what;
  int step;
  std::string policy;
};
std::vector<PoisonedCase> cases() {
  std::vector<PoisonedCase> list;
  for (const char* what : {"loss", "gradient", "weight", "moment"}) {
    for (const int step : {5, 6}) {
      for (const char* policy : {"stop", "skip", "rollback"}) list.push_back({what, step, policy});
    }
  }
  return list;
}
std::string name_of(const ::testing::TestParamInfo<PoisonedCase>& info) {
  return info.param.what + "_at_" + std::to_string(info.param.step) + "_" + info.param.policy;
}

// The result of the run that skips the update of `step`, computed once for each step.
struct Skipped {
  std::map<std::string, std::string> bits;
  std::string model;
  Json log;
};
const Skipped& without_update(int step) {
  static std::map<int, Skipped> made;
  const auto found = made.find(step);
  if (found != made.end()) return found->second;
  TinyRun run(kSmallRun);
  run.set({{"divergence_policy", "skip"}});
  EXPECT_EQ(run.train({}, poison("loss@" + std::to_string(step))).code, 0);
  return made[step] = {.bits = saved_tensors(run.out("checkpoint-9")),
                       .model = read_file(run.out("model.safetensors")),
                       .log = log_of(run)};
}

class Poisoned : public ::testing::TestWithParam<PoisonedCase> {};
INSTANTIATE_TEST_SUITE_P(Everywhere, Poisoned, ::testing::ValuesIn(cases()), name_of);

// Step 6 is saved, step 5 is not.
TEST_P(Poisoned, NeverReachesACheckpoint) {
  const auto& [what, step, policy] = GetParam();
  TinyRun run(kSmallRun);
  run.set({{"divergence_policy", policy}});
  const ProcessResult result = run.train({}, poison(what + "@" + std::to_string(step)));
  const bool in_state = what == "weight" || what == "moment";
  EXPECT_GE(expect_numbers_in_checkpoints(run), 1);
  if (policy == "stop") {
    EXPECT_EQ(result.code, 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr("learning_rate"));
    const ProcessResult again = run.train();
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_THAT(again.err, HasSubstr(in_state ? "checkpoint-3" : "checkpoint-"));
    return;
  }
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("1 update skipped"));
  const Json state = state_of(run.out());
  EXPECT_EQ(state["step"], 10);
  EXPECT_EQ(state["updates"], 9);
  EXPECT_EQ(state["skipped_updates"], 1);
  EXPECT_EQ(state["divergence_tries"], 0);
  // NaN in a weight is detected when it is saved or used; after the rollback the steps up to there
  // are watched.
  EXPECT_EQ(state["rollbacks"], in_state ? 2 : policy == "skip" ? 0 : 1);
  EXPECT_TRUE(holds_numbers_alone(run.out("model.safetensors")));

  // However it was detected: the result is that of the run without this update.
  EXPECT_TRUE(saved_tensors(run.out("checkpoint-9")) == without_update(step).bits);
  EXPECT_TRUE(read_file(run.out("model.safetensors")) == without_update(step).model);
  EXPECT_EQ(log_of(run), without_update(step).log);
}

// Data with one regression target whose loss exceeds float32.
class HostileRow : public ::testing::Test {
 protected:
  HostileRow() {
    run_.set(kSmallRun);
    run_.set({{"task", "sequence_classification"},
              {"problem_type", "regression"},
              {"train_file", rows("1e30")},
              {"max_steps", ""},
              {"num_train_epochs", "3"},
              {"save_steps", "2"}});
  }
  [[nodiscard]] std::string rows(const std::string& label) const {
    std::string text = "text,label\n";
    for (int i = 0; i < 24; ++i) {
      text += "the light of tower " + std::to_string(i) + "," +
              (i == 5 ? label : "0." + std::to_string(i % 10)) + "\n";
    }
    const std::string path = run_.folder() / "rows.csv";
    write_file(path, text);
    return path;
  }
  // Trains and returns the steps whose update was skipped.
  [[nodiscard]] Json trained(const TinyRun::Keys& keys, const Arguments& more = {}) {
    run_.set(keys);
    const ProcessResult result = run_.train(more);
    EXPECT_EQ(result.code, 0) << result.err;
    return state_of(run_.out());
  }

  TinyRun run_;
};

TEST_F(HostileRow, IsSkippedOnceAnEpoch) {
  const Json state = trained({{"divergence_policy", "skip"}});
  EXPECT_EQ(state["step"], 18);
  EXPECT_EQ(state["skipped_updates"], 3);
  EXPECT_EQ(state["nonfinite_updates"], 3);
  EXPECT_EQ(state["updates"], 15);
}

TEST_F(HostileRow, IsLeftOutWithTheSameResult) {
  const Json skipped = trained({{"divergence_policy", "skip"}});
  const auto expected = saved_tensors(run_.out("checkpoint-18"));
  const Json log = log_of(run_);
  const Json state = trained({{"divergence_policy", "rollback"}}, {"--restart"});
  EXPECT_EQ(state["rollbacks"], 3);
  EXPECT_EQ(state["left_out"].size(), 3U);
  EXPECT_EQ(state["updates"], skipped["updates"]);
  EXPECT_TRUE(saved_tensors(run_.out("checkpoint-18")) == expected);
  EXPECT_EQ(log_of(run_), log);
}

TEST_F(HostileRow, IsLeftOutWithTheSameResultHoweverOftenTheRunIsStopped) {
  const Json whole = trained({{"divergence_policy", "rollback"}});
  const auto expected = saved_tensors(run_.out("checkpoint-18"));
  const Json log = log_of(run_);
  std::filesystem::remove_all(run_.out());
  std::filesystem::create_directories(run_.out());
  for (int step = 1; step < 18; ++step) run_.train_until(step);
  const Json state = trained({});
  EXPECT_TRUE(saved_tensors(run_.out("checkpoint-18")) == expected);
  EXPECT_EQ(log_of(run_), log);
  for (const char* key : {"rollbacks", "skipped_updates", "nonfinite_updates", "left_out",
                          "divergence_tries", "updates"}) {
    EXPECT_EQ(state[key], whole[key]) << key;
  }
}

TEST_F(HostileRow, IsLeftOutWithTheSameResultWhereTheRunIsKilled) {
  const Json whole = trained({{"divergence_policy", "rollback"}});
  const auto expected = saved_tensors(run_.out("checkpoint-18"));
  for (const char* text : {"rolling back to", "are left out, as", "are left out, as"}) {
    std::filesystem::remove_all(run_.out());
    std::filesystem::create_directories(run_.out());
    for (int kills = 0; kills < 2; ++kills) {
      Process process(run_.command({"--log_level", "info"}));
      process.wait_for_output(text);
      process.send(SIGKILL);
      (void)process.finish();
    }
    const Json state = trained({});
    EXPECT_TRUE(saved_tensors(run_.out("checkpoint-18")) == expected) << text;
    EXPECT_EQ(state["rollbacks"], whole["rollbacks"]);
  }
}

TEST_F(HostileRow, StopsTheRunByDefaultWithTheStateBeforeItSaved) {
  const ProcessResult result = run_.train();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("the update was not applied"));
  // The same checkpoint resumes with another policy.
  EXPECT_EQ(trained({{"divergence_policy", "skip"}})["skipped_updates"], 3);
}

TEST_F(HostileRow, IsASpikeWhereItsLossIsANumber) {
  run_.set({{"train_file", rows("1000")}, {"loss_spike_factor", "50"}, {"num_train_epochs", "5"}});
  const ProcessResult stopped = run_.train();
  EXPECT_EQ(stopped.code, 1) << stopped.err;
  EXPECT_THAT(stopped.err, HasSubstr("more than 50.0 times the median"));
  const Json skipped = trained({{"divergence_policy", "skip"}}, {"--restart"});
  EXPECT_GE(skipped["skipped_updates"], 2);
  EXPECT_EQ(skipped["nonfinite_updates"], 0);
  const auto expected = saved_tensors(run_.out("checkpoint-30"));
  // The window of losses is stored in the checkpoint.
  std::filesystem::remove_all(run_.out());
  std::filesystem::create_directories(run_.out());
  for (const int step : {3, 9, 16, 17, 22, 29}) run_.train_until(step);
  EXPECT_EQ(trained({})["skipped_updates"], skipped["skipped_updates"]);
  EXPECT_TRUE(saved_tensors(run_.out("checkpoint-30")) == expected);
}

// The square of the gradient exceeds float32: the second moment would stay infinite forever, the
// weight would never change again, and no loss would show it.
TEST_F(HostileRow, MayNotLeaveAMomentThatIsInfinite) {
  run_.set({{"train_file", rows("1.5e19")},
            {"adam_beta2", "0"},
            {"max_grad_norm", "0"},
            {"num_train_epochs", "1"}});
  const ProcessResult stopped = run_.train();
  EXPECT_EQ(stopped.code, 1) << stopped.err;
  // The save of that step detects it concurrently with training, unless the loss of a later step is
  // faster.
  EXPECT_THAT(stopped.err, HasSubstr("contains NaN or Inf"));
  const Json state = trained({{"divergence_policy", "rollback"}});
  EXPECT_EQ(state["skipped_updates"], 1);
  EXPECT_EQ(state["step"], 6);
}

// A checkpoint of another program that contains NaN; ours never does.
TEST(Divergence, IsPassedOverInACheckpoint) {
  TinyRun run(kSmallRun);
  ASSERT_EQ(run.train().code, 0);
  const std::string weights = run.out("checkpoint-9/model.safetensors");
  std::string content = read_file(weights);
  const float wrong = std::nanf("");
  std::memcpy(content.data() + content.size() - sizeof(wrong), &wrong, sizeof(wrong));
  write_file(weights, content);
  for (const char* name : {"checkpoint-9/manifest.json", "checkpoint-9/finetune_state.json",
                           "model.safetensors", "finetune_state.json"}) {
    std::filesystem::remove(run.out(name));
  }
  std::filesystem::remove_all(run.out("checkpoint-10"));
  const ProcessResult result = run.train();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("checkpoint-9 is skipped: model.safetensors contains NaN"));
  EXPECT_THAT(result.err, HasSubstr("resuming from " + run.out("checkpoint-6")));
}

TEST(Divergence, StopsWhereNoTryHelps) {
  TinyRun run(kSmallRun);
  run.set({{"divergence_policy", "skip"}});
  const ProcessResult result = run.train({}, poison("loss@5,loss@6,loss@7,loss@8"));
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("try 3 of 3"));
  EXPECT_THAT(result.err, HasSubstr("4 times without progress"));
  EXPECT_EQ(state_of(run.out("checkpoint-7"))["divergence_tries"], 0);

  run.set({{"divergence_policy", "rollback"}, {"divergence_max_tries", "5"}});
  const ProcessResult more = run.train({"--restart"}, poison("loss@5,loss@6,loss@7,loss@8"));
  EXPECT_EQ(more.code, 0) << more.err;
  EXPECT_EQ(state_of(run.out())["rollbacks"], 4);
}

TEST(Divergence, HasNothingToGoBackToBeforeTheFirstCheckpoint) {
  TinyRun run(kSmallRun);
  run.set({{"divergence_policy", "rollback"}});
  const ProcessResult result = run.train({}, poison("loss@2"));
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("no checkpoint to roll back to yet"));
}

// Weights that the backward pass has already updated cannot be skipped.
TEST(Divergence, GoesBackWhereAnUpdateIsHalfApplied) {
  TinyRun run(kSmallRun);
  run.set(
      {{"divergence_policy", "skip"}, {"optimizer_in_backward", "true"}, {"max_grad_norm", "0"}});
  const ProcessResult result = run.train({}, poison("loss@5"));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("rolling back to"));
  EXPECT_EQ(state_of(run.out())["rollbacks"], 1);
  EXPECT_TRUE(holds_numbers_alone(run.out("model.safetensors")));
}

TEST(Divergence, GoesBackWithEveryFormat) {
  const std::vector<TinyRun::Keys> formats = {
      {{"fp16", "true"}},
      {{"optim", "adamw_8bit"}, {"optim_args", "min_8bit_size=0"}},
      {{"optim", "adamw_companded_8bit"}},
      {{"optim", "adafactor"}},
      {{"optim", "sgd"}, {"optim_args", "momentum=0.9"}},
      {{"param_dtype", "bfloat16"}},
      {{"param_dtype", "bfloat16+int8"}, {"grad_accum_dtype", "bfloat16"}}};
  for (const TinyRun::Keys& format : formats) {
    TinyRun skips(kSmallRun);
    skips.set(format);
    skips.set({{"divergence_policy", "skip"}});
    ASSERT_EQ(skips.train({}, poison("loss@5")).code, 0);
    TinyRun returns(kSmallRun);
    returns.set(format);
    returns.set({{"divergence_policy", "rollback"}});
    const ProcessResult result = returns.train({}, poison("loss@5"));
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(state_of(returns.out())["rollbacks"], 1);
    EXPECT_TRUE(saved_tensors(returns.out("checkpoint-9")) ==
                saved_tensors(skips.out("checkpoint-9")))
        << format.begin()->first << " " << format.begin()->second;
  }
}

}  // namespace
}  // namespace finetune::testing
