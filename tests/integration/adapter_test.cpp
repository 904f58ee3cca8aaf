// SPDX-License-Identifier: MIT
// A LoRA adapter is trained with the guarantees of a whole model, in a folder without the base.
#include <filesystem>

#include "integration/adapter_run.h"

namespace finetune::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(AdapterRun, EndsInTheSameBitsAfterKillsAtRandomMoments) {
  const TinyRun whole(keys());
  const ProcessResult unbroken = whole.train();
  ASSERT_EQ(unbroken.code, 0) << unbroken.err;
  const TinyRun run(keys());
  EXPECT_GE(kill_at_random_moments(run, unbroken.seconds, 6, 20261125), 1);
  const ProcessResult result = run.train();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(adapter_of(run) == adapter_of(whole));
  EXPECT_EQ(log_without_times(run.out()), log_without_times(whole.out()));
}

TEST_F(AdapterRun, EndsInTheSameBitsWithEveryPrecisionAndTechnique) {
  for (const TinyRun::Keys& more :
       std::vector<TinyRun::Keys>{{{"bf16", "true"}},
                                  {{"fp16", "true"}},
                                  {{"dtype", "bfloat16"}},
                                  {{"optim", "adamw_8bit"}, {"gradient_checkpointing", "true"}},
                                  {{"full_determinism", "true"}}}) {
    SCOPED_TRACE(more.begin()->first);
    TinyRun::Keys all = keys(more);
    all["max_steps"] = "12";
    all["eval_strategy"] = "no";
    all["validation_file"] = "";
    const TinyRun whole(all);
    const ProcessResult unbroken = whole.train();
    ASSERT_EQ(unbroken.code, 0) << unbroken.err;
    const TinyRun run(all);
    run.train_until(5);
    const ProcessResult result = run.train();
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(adapter_of(run) == adapter_of(whole));
  }
}

// Splitting and recomputing change no bit of the result; nor does the type that holds the base.
TEST_F(AdapterRun, RecomputationChangesNoBit) {
  const auto trained = [](const TinyRun::Keys& more) {
    TinyRun::Keys all = keys(more);
    all["max_steps"] = "4";
    const TinyRun run(all);
    const ProcessResult result = run.train();
    EXPECT_EQ(result.code, 0) << result.err;
    return adapter_of(run);
  };
  const std::string plain = trained({});
  EXPECT_TRUE(trained({{"gradient_checkpointing", "true"}}) == plain);
  EXPECT_TRUE(
      trained({{"per_device_train_batch_size", "8"}, {"gradient_accumulation_steps", "1"}}) ==
      trained({{"per_device_train_batch_size", "8"},
               {"gradient_accumulation_steps", "1"},
               {"gradient_checkpointing", "true"}}));
}

TEST_F(AdapterRun, SavesTheAdapterAloneAndAnswersWithItsBase) {
  const TinyRun run(keys());
  ASSERT_EQ(run.train().code, 0);
  for (const std::string& folder : {run.out(), run.out("checkpoint-40")}) {
    EXPECT_TRUE(std::filesystem::exists(folder + "/adapter_config.json")) << folder;
    EXPECT_FALSE(std::filesystem::exists(folder + "/config.json")) << folder;
    EXPECT_FALSE(std::filesystem::exists(folder + "/model.safetensors")) << folder;
  }
  // 2 layers with q, k, v, o and gate, up, down, each with rank 4, in float32, and the header.
  const size_t values = 2 * 4 * ((32 + 32) * 2 + (32 + 16) * 2 + (32 + 64) * 3);
  const size_t bytes = adapter_of(run).size();
  EXPECT_GE(bytes, 4 * values);
  EXPECT_LE(bytes, 4 * values + 8192);
  for (const std::string& folder : {run.out(), run.out("checkpoint-40")}) {
    const ProcessResult answer =
        finetune({"predict", folder, "--text", "The lamp", "--max_new_tokens", "4"});
    EXPECT_EQ(answer.code, 0) << answer.err;
    EXPECT_THAT(answer.out, HasSubstr("generated_text"));
  }
  const ProcessResult again = run.train();
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("already finished"));
  const ProcessResult evaluated = finetune({"evaluate", run.config()});
  EXPECT_EQ(evaluated.code, 0) << evaluated.err;
}

// What PEFT's loaders accept without a word, each is an error here.
TEST_F(AdapterRun, RefusesAnotherBaseAMissingOneAndADamagedAdapter) {
  const TemporaryFolder copies;
  const std::string copy = copies / "base";
  std::filesystem::copy(base(), copy, std::filesystem::copy_options::recursive);
  for (const char* name : {"manifest.json", ".finetune.files", "finetune_state.json"}) {
    std::filesystem::remove(copy + "/" + name);
  }
  const TinyRun run(keys({{"model_name_or_path", copy}}));
  run.train_until(9);
  const std::string weights = read_file(copy + "/model.safetensors");
  std::string other = weights;
  other[other.size() - 200] = static_cast<char>(other[other.size() - 200] ^ 1);
  write_file(copy + "/model.safetensors", other);
  ProcessResult refused = run.train();
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("model_name_or_path"), HasSubstr("content hash")));

  std::filesystem::rename(copy, copy + "-away");
  refused = run.train();
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("checkpoints hold the adapter alone"));
  refused = finetune({"predict", run.out("checkpoint-9"), "--text", "The lamp"});
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.err, HasSubstr("it is the base of the adapter"));

  std::filesystem::rename(copy + "-away", copy);
  write_file(copy + "/model.safetensors", weights);
  std::string damaged = read_file(run.out("checkpoint-9/adapter_model.safetensors"));
  damaged[damaged.size() - 100] = static_cast<char>(damaged[damaged.size() - 100] ^ 1);
  write_file(run.out("checkpoint-9/adapter_model.safetensors"), damaged);
  const ProcessResult resumed = run.train();
  EXPECT_EQ(resumed.code, 0) << resumed.err;  // from the checkpoint before
  EXPECT_THAT(resumed.err, AllOf(HasSubstr("checkpoint-9 is not used"), HasSubstr("damaged")));
}

TEST_F(AdapterRun, NamesTheKeyOfEachMistake) {
  const std::vector<std::pair<TinyRun::Keys, std::string>> mistakes = {
      {{{"lora_target_modules", "[proj]"}}, "no linear layer of the model is named 'proj'"},
      {{{"lora_target_modules", "[lm_head]"}}, "lora_modules_to_save: [lm_head]"},
      {{{"lora_r", "1000"}}, "lora_r: rank 1000 is above the size of"},
      {{{"lora_dropout", "1.0"}}, "lora_dropout"},
      {{{"task", "mlm"}}, "use_peft: is available for task clm"},
      {{{"use_peft", "false"}, {"dtype", "bfloat16"}}, "param_dtype: bfloat16"},
  };
  for (const auto& [more, message] : mistakes) {
    const TinyRun run(keys(more));
    const ProcessResult result = run.train({"--dry_run"});
    EXPECT_EQ(result.code, 2) << message;
    EXPECT_THAT(result.err, HasSubstr(message));
  }
}

}  // namespace
}  // namespace finetune::testing
