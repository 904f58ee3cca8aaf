// SPDX-License-Identifier: MIT
// A LoRA adapter in several processes, under verify-resume, and within a memory budget.
#include "integration/adapter_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class AdapterProcesses : public AdapterRun {
 protected:
  // 8 samples per step in 4 micro-batches, which 1, 2 and 4 processes divide among themselves.
  static TinyRun::Keys shared_keys(const TinyRun::Keys& more = {}) {
    TinyRun::Keys all = keys({{"per_device_train_batch_size", "2"},
                              {"effective_batch_size", "8"},
                              {"gradient_accumulation_steps", ""},
                              {"dataloader_num_workers", "0"},
                              {"max_steps", "8"},
                              {"save_steps", "4"},
                              {"eval_steps", "4"},
                              {"full_determinism", "true"}});
    for (const auto& [key, value] : more) all[key] = value;
    return all;
  }
  static ProcessResult train(const TinyRun& run, int processes, const Arguments& more = {}) {
    Arguments words = {"--num_processes", std::to_string(processes)};
    words.insert(words.end(), more.begin(), more.end());
    return run.train(words);
  }
  static std::string bits_of(const TinyRun& run) {
    Json log = log_without_times(run.out());
    // Processes divide the samples of an epoch evenly, so that it may end a sample later.
    for (Json& entry : log) entry.erase("epoch");
    return adapter_of(run) + read_file(run.out("checkpoint-8/optimizer.pt")) + log.dump();
  }
};

TEST_F(AdapterProcesses, EndInTheSameBitsForAnyNumberWithFullDeterminism) {
  const TinyRun alone(shared_keys());
  ASSERT_EQ(alone.train().code, 0);
  const std::string expected = bits_of(alone);
  for (const int count : {2, 4}) {
    const TinyRun run(shared_keys());
    const ProcessResult result = train(run, count);
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(bits_of(run) == expected) << count;
  }
  // Another number in each session, and states that are divided.
  const TinyRun run(shared_keys({{"zero_stage", "1"}}));
  for (const auto& [count, step] : {std::pair{1, 3}, {4, 5}}) {
    const ProcessResult result = train(run, count, {"--stop_at_step", std::to_string(step)});
    ASSERT_EQ(result.code, 75) << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("not bit-exact")));
  }
  const ProcessResult result = train(run, 2);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(bits_of(run) == expected);
}

TEST_F(AdapterProcesses, EndInTheSameBitsAfterAResumeWithoutFullDeterminism) {
  const TinyRun::Keys keys = shared_keys({{"full_determinism", "false"}});
  const TinyRun whole(keys);
  ASSERT_EQ(train(whole, 2).code, 0);
  const TinyRun run(keys);
  ASSERT_EQ(train(run, 2, {"--stop_at_step", "5"}).code, 75);
  ASSERT_EQ(train(run, 2).code, 0);
  EXPECT_TRUE(bits_of(run) == bits_of(whole));
}

TEST_F(AdapterProcesses, AreVerified) {
  const TinyRun run(keys());
  const ProcessResult result =
      finetune({"verify-resume", run.config(), "--steps", "6", "--interrupt_at", "3"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("equal: 6 steps, interrupted at step 3"));
}

TEST_F(AdapterProcesses, ArePlannedWithoutStatesOfTheBase) {
  const auto states_of = [](const TinyRun::Keys& more) {
    const TinyRun run(keys(more));
    const ProcessResult plan = finetune({"plan", run.config(), "--json"});
    EXPECT_EQ(plan.code, 0) << plan.err;
    return parse_json(plan.out, "plan").at("parts").at("optimizer states").get<double>();
  };
  EXPECT_EQ(states_of({}), 2 * 4 * 4096);  // two moments of the adapter's values
  EXPECT_GT(states_of({{"use_peft", "false"}}), 2 * 4 * 4 * 4096);
  EXPECT_GT(states_of({{"lora_target_modules", "[embed_tokens, q_proj]"}}),
            states_of({{"lora_target_modules", "[q_proj]"}}));

  const TinyRun run(keys({{"memory_budget", "1GiB"}, {"max_steps", "4"}}));
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("memory_budget 1024 MiB: "));
  const TinyRun small(keys({{"memory_budget", "64MiB"}}));
  const ProcessResult refused = small.train();
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("memory_budget: 64 MiB is not enough; "));
}

}  // namespace
}  // namespace finetune::testing
