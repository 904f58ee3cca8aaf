// SPDX-License-Identifier: MIT
#include "train/setup/resume.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "finetune/config/load.h"
#include "finetune/kernels/precision.h"
#include "support/golden.h"
#include "train/setup/memory_budget.h"

namespace finetune {
namespace {

Environment machine() {
  return {.finetune_version = "0",
          .torch_version = "2.13.0",
          .device = "cpu",
          .cpu_capability = "AVX2",
          .threads = 2,
          .processors = 2,
          .machine_memory = int64_t{12} << 30};
}

TEST(MachineDifference, NamesEverythingThatIsNotAsItWas) {
  const Environment then = machine();
  Environment now = machine();
  EXPECT_EQ(machine_difference(then, now), "");
  now.machine_memory += int64_t{100} << 20;  // another kernel reserves less
  EXPECT_EQ(machine_difference(then, now), "");
  now.machine_memory = int64_t{24} << 30;
  now.processors = 8;
  EXPECT_EQ(machine_difference(then, now), "processors 2 -> 8, memory 12.0 GiB -> 24.0 GiB");
  now = machine();
  now.device = "Tesla T4 (cuda:0 of 1, 14.7 GiB)";
  now.torch_version = "2.14.0";
  EXPECT_GOLDEN(machine_difference(then, now));
}

TEST(MachineDifference, KnowsNothingOfWhatAnOlderCheckpointLacks) {
  Environment then = machine();
  then.processors = 0;
  then.machine_memory = 0;
  EXPECT_EQ(machine_difference(then, machine()), "");
}

TEST(ShardDifference, TellsOfCheckpointsWhoseShardsAllThreadsComputed) {
  RunState saved;
  saved.environment = machine();
  EXPECT_EQ(shard_difference(saved, 1), "");  // without full_determinism
  saved.shard_rows = 4;
  EXPECT_NE(shard_difference(saved, 1), "");
  EXPECT_EQ(shard_difference(saved, 0), "");  // on a device now
  saved.environment.threads = 1;              // the same arithmetic
  EXPECT_EQ(shard_difference(saved, 1), "");
  saved.environment.threads = 2;
  saved.shard_threads = 1;
  EXPECT_EQ(shard_difference(saved, 1), "");
}

TEST(ArithmeticDifference, TellsOfAnotherNumberWhereTheRunComputesWhatChanged) {
  Environment then = machine();
  Environment now = machine();
  then.device = now.device = "cpu";
  then.arithmetic = 1;
  now.arithmetic = 2;
  TrainingArgs args;
  EXPECT_EQ(arithmetic_difference(then, now, args), "");  // in float32 nothing has changed
  for (const bool is_bf16 : {true, false}) {
    args.bf16 = is_bf16;
    args.fp16 = !is_bf16;
    const Precision precision = is_bf16 ? Precision::kBFloat16 : Precision::kFloat16;
    const bool has_instructions = has_fast_products(precision, at::kCPU);
    EXPECT_EQ(arithmetic_difference(then, now, args).empty(), has_instructions) << is_bf16;
  }
  EXPECT_EQ(arithmetic_difference(now, now, args), "");
  EXPECT_GOLDEN(arithmetic_difference(now, then, args));
  then.arithmetic = 3;
  now.arithmetic = 4;
  EXPECT_GOLDEN(arithmetic_difference(then, now, args));
  args.task = "token_classification";  // whose loss reads all tokens
  EXPECT_EQ(arithmetic_difference(then, now, args), "");
}

// A decision of memory_budget is kept only on the same machine.
TEST(KeptDecision, IsPlannedAnewWhereTheMachineIsAnother) {
  const LoadedConfig config =
      load_config_text("memory_budget: 2GiB\nper_device_train_batch_size: 16\n", "run.yaml", {});
  RunState saved;
  saved.effective_batch_size = 16;
  saved.environment = machine();
  MemoryDecision decision{.asked = choices_of(config.args),
                          .choices = choices_of(config.args),
                          .budget = int64_t{2} << 30,
                          .effective_batch = 16,
                          .predicted = int64_t{1} << 30};
  decision.choices.micro_batch = 4;
  saved.memory = decision.to_json();
  std::string why;
  const auto same = kept_decision(config, saved, machine(), why);
  ASSERT_TRUE(same);
  EXPECT_EQ(same->choices, decision.choices);
  EXPECT_EQ(why, "");

  for (const auto change :
       {+[](Environment& e) { e.device = "Tesla T4"; },
        +[](Environment& e) { e.machine_memory *= 2; }, +[](Environment& e) { e.processors = 8; },
        +[](Environment& e) { e.torch_version = "3"; }}) {
    Environment other = machine();
    change(other);
    why.clear();
    EXPECT_FALSE(kept_decision(config, saved, other, why));
    EXPECT_NE(why, "");
  }
}

}  // namespace
}  // namespace finetune
