// SPDX-License-Identifier: MIT
// Runs on a device: they give the CPU's numbers and survive what CPU runs survive.
#include "accelerator/accelerator.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const TinyRun::Keys kShort = {{"max_steps", "8"},
                              {"save_steps", "2"},
                              {"save_total_limit", ""},
                              {"eval_steps", "4"},
                              {"dataloader_num_workers", "1"}};

std::vector<double> losses(const TinyRun& run) {
  std::vector<double> values;
  for (const Json& entry : log_without_times(run.out())) {
    for (const char* key : {"loss", "eval_loss"}) {
      if (entry.contains(key)) values.push_back(entry[key].get<double>());
    }
  }
  return values;
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 2e-5) << i;
}

// With the same dropout masks and data, losses equal the CPU's up to the order of sums.
TEST(AcceleratorRun, HasTheLossesOfTheCpu) {
  const TinyRun on_cpu(kShort);
  ASSERT_EQ(on_cpu.train({"--use_cpu", "true"}).code, 0);
  const TinyRun on_device(kShort);
  Accelerator accelerator;
  const ProcessResult result = accelerator.train(on_device);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("on pretend (pretend:0 of 1, 16.0 GiB)"));
  const std::vector<double> expected = losses(on_cpu);
  const std::vector<double> actual = losses(on_device);
  ASSERT_EQ(expected.size(), 10U);
  expect_near(actual, expected);
}

// Every save is written in the background; the kill happens during a save.
TEST(AcceleratorRun, KilledAmongItsSavesEndsInTheSameBits) {
  Accelerator accelerator;
  const TinyRun whole(kShort);
  ASSERT_EQ(accelerator.train(whole).code, 0);
  const TinyRun killed(kShort);
  {
    ProcessOptions options = accelerator.options();
    options.watch = killed.out();
    Process process(killed.command({"--max_steps", "800"}), options);
    ASSERT_TRUE(process.wait_for_file("checkpoint-4"));
    process.send(SIGKILL);
    EXPECT_EQ(process.finish().code, 128 + SIGKILL);
  }
  // The schedule has 800 steps, so the run to compare with resumes from the same step.
  for (const auto& entry : std::filesystem::directory_iterator(killed.out())) {
    const std::string name = entry.path().filename();
    if (name.starts_with("checkpoint-") && name != "checkpoint-2") {
      std::filesystem::remove_all(entry.path());
    }
  }
  const TinyRun again(kShort);
  std::filesystem::copy(killed.out("checkpoint-2"), again.out("checkpoint-2"),
                        std::filesystem::copy_options::recursive);
  for (const TinyRun* run : {&killed, &again}) {
    const ProcessResult result =
        accelerator.train(*run, {"--max_steps", "800", "--stop_at_step", "8"});
    ASSERT_EQ(result.code, 75) << result.err;
    EXPECT_THAT(result.err, HasSubstr("checkpoint-2"));
  }
  EXPECT_TRUE(saved_tensors(killed.out("checkpoint-8")) ==
              saved_tensors(again.out("checkpoint-8")));
}

TEST(AcceleratorRun, StoppedAndResumedEndsInTheSameBits) {
  Accelerator accelerator;
  const TinyRun whole(kShort);
  ASSERT_EQ(accelerator.train(whole).code, 0);
  const TinyRun stopped(kShort);
  ASSERT_EQ(accelerator.train(stopped, {"--stop_at_step", "3"}).code, 75);
  const ProcessResult resumed = accelerator.train(stopped);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_TRUE(saved_tensors(stopped.out("checkpoint-8")) ==
              saved_tensors(whole.out("checkpoint-8")));
  EXPECT_EQ(log_without_times(stopped.out()), log_without_times(whole.out()));
}

TEST(AcceleratorRun, SavesTheSameInTheBackgroundAndInTheForeground) {
  Accelerator accelerator;
  const TinyRun background(kShort);
  ASSERT_EQ(accelerator.train(background).code, 0);
  const TinyRun foreground(kShort);
  ASSERT_EQ(accelerator.train(foreground, {"--async_save", "false"}).code, 0);
  for (const char* folder : {"checkpoint-2", "checkpoint-4", "checkpoint-8"}) {
    EXPECT_TRUE(saved_tensors(background.out(folder)) == saved_tensors(foreground.out(folder)))
        << folder;
  }
}

TEST(AcceleratorRun, TakesFewerSamplesAtATimeWhenOutOfMemory) {
  TinyRun::Keys keys = kShort;
  keys["per_device_train_batch_size"] = "16";
  keys["gradient_accumulation_steps"] = "1";
  keys["eval_strategy"] = "no";
  keys["validation_file"] = "";
  Accelerator accelerator;
  const TinyRun whole(keys);
  ASSERT_EQ(accelerator.train(whole).code, 0);
  const int64_t peak = accelerator.report().peak_bytes;

  const TinyRun rescued(keys);
  const ProcessResult result = accelerator.train(
      rescued, {}, {{"PRETEND_ACCELERATOR_BYTES", std::to_string(peak * 7 / 10)}});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("out of memory"));
  EXPECT_THAT(result.err, HasSubstr("samples instead of 16"));
  EXPECT_THAT(result.err, HasSubstr("the effective batch stays 16"));
  EXPECT_LE(accelerator.report().peak_bytes, peak * 7 / 10);
  expect_near(losses(rescued), losses(whole));
}

TEST(AcceleratorRun, EndsWithOneSentenceWhenTheModelDoesNotFit) {
  const TinyRun run(kShort);
  Accelerator accelerator;
  const ProcessResult result =
      accelerator.train(run, {}, {{"PRETEND_ACCELERATOR_BYTES", "100000"}});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("out of memory"));
  EXPECT_THAT(result.err, Not(HasSubstr("internal error")));
  EXPECT_THAT(result.err, Not(HasSubstr("frame #")));
}

TEST(AcceleratorRun, OfBlockSparseAttentionResumesInTheSameBits) {
  TinyRun::Keys keys = kShort;
  keys["model_type"] = "big_bird";
  keys["config_overrides"] =
      "{num_hidden_layers: 2, num_attention_heads: 2, hidden_size: 32, intermediate_size: 64, "
      "max_position_embeddings: 32, block_size: 2, num_random_blocks: 1}";
  keys["max_steps"] = "4";
  Accelerator accelerator;
  const TinyRun whole(keys);
  const ProcessResult result = accelerator.train(whole);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("block-sparse attention, blocks of 2 tokens"));
  EXPECT_THAT(result.err, Not(HasSubstr("full attention")));
  const auto expected = saved_tensors(whole.out("checkpoint-4"));
  const std::vector<double> on_device = losses(whole);
  keep_only_checkpoint(whole, 2);
  ASSERT_EQ(accelerator.train(whole).code, 0);
  EXPECT_TRUE(saved_tensors(whole.out("checkpoint-4")) == expected);

  const TinyRun on_cpu(keys);
  ASSERT_EQ(on_cpu.train({"--use_cpu", "true"}).code, 0);
  expect_near(on_device, losses(on_cpu));
}

// Of four micro-batches an update, which processes divide among themselves.
TinyRun::Keys shared_keys() {
  TinyRun::Keys keys = kShort;
  keys["max_steps"] = "4";
  keys["full_determinism"] = "true";
  keys["per_device_train_batch_size"] = "2";
  keys["gradient_accumulation_steps"] = "";
  keys["effective_batch_size"] = "8";
  keys["dataloader_num_workers"] = "0";
  return keys;
}

TEST(AcceleratorRun, OfTwoProcessesUsesTwoDevicesAndHasTheBitsOfOne) {
  const TinyRun::Keys keys = shared_keys();
  Accelerator accelerator;
  const TinyRun one(keys);
  ASSERT_EQ(accelerator.train(one).code, 0);
  const TinyRun two(keys);
  const ProcessResult result =
      accelerator.train(two, {"--num_processes", "2"}, {{"CUDA_VISIBLE_DEVICES", "0,1"}});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(accelerator.report().devices, (std::multiset<std::string>{"0", "1"}));
  EXPECT_TRUE(read_file(two.out("model.safetensors")) == read_file(one.out("model.safetensors")));
}

// The norm of divided gradients is summed in another order on a device.
TEST(AcceleratorRun, OfTwoProcessesDividesTheModel) {
  TinyRun::Keys keys = shared_keys();
  keys["config_overrides"] =
      "{num_hidden_layers: 2, num_attention_heads: 2, hidden_size: 128, intermediate_size: 256, "
      "max_position_embeddings: 34, type_vocab_size: 1}";
  const std::map<std::string, std::string> devices = {{"CUDA_VISIBLE_DEVICES", "0,1"}};
  Accelerator accelerator;
  const TinyRun whole(keys);
  ASSERT_EQ(accelerator.train(whole, {"--num_processes", "2"}, devices).code, 0);
  const std::vector<double> expected = losses(whole);
  std::vector<std::string> models;
  for (const char* stage : {"2", "3"}) {
    const TinyRun divided(keys);
    const ProcessResult result =
        accelerator.train(divided, {"--num_processes", "2", "--zero_stage", stage}, devices);
    ASSERT_EQ(result.code, 0) << result.err;
    expect_near(losses(divided), expected);
    models.push_back(read_file(divided.out("model.safetensors")));
  }
  EXPECT_TRUE(models[0] == models[1]);
  keys["param_dtype"] = "bfloat16+int8";
  keys["optim"] = "adamw_companded_8bit";
  keys["bf16"] = "true";
  const TinyRun narrow(keys);
  ASSERT_EQ(accelerator.train(narrow, {"--num_processes", "2"}, devices).code, 0);
  const TinyRun divided(keys);
  ASSERT_EQ(accelerator.train(divided, {"--num_processes", "2", "--zero_stage", "3"}, devices).code,
            0);
  const std::vector<double> of_divided = losses(divided);
  const std::vector<double> of_narrow = losses(narrow);
  ASSERT_EQ(of_divided.size(), of_narrow.size());
  // Another norm in its last digits, and rounding to 8 bits.
  for (size_t i = 0; i < of_narrow.size(); ++i) EXPECT_NEAR(of_divided[i], of_narrow[i], 1e-3);
}

// Shards have their own gradients, which autograd adds to in the device's thread.
TEST(AcceleratorRun, WithFullDeterminismHasTheLossesOfTheCpu) {
  TinyRun::Keys keys = kShort;
  keys["full_determinism"] = "true";
  const TinyRun on_cpu(keys);
  ASSERT_EQ(on_cpu.train({"--use_cpu", "true"}).code, 0);
  const TinyRun on_device(keys);
  Accelerator accelerator;
  const ProcessResult result = accelerator.train(on_device);
  ASSERT_EQ(result.code, 0) << result.err;
  expect_near(losses(on_device), losses(on_cpu));
}

TEST(AcceleratorRun, PredictsWhatTheCpuPredicts) {
  const Arguments words = finetune_command(
      {"predict", kMaskedLm, "--text", "A <mask> light.", "The keeper of the <mask>."});
  Accelerator accelerator;
  const ProcessResult on_device = accelerator.run(words);
  ASSERT_EQ(on_device.code, 0) << on_device.err;
  EXPECT_GT(accelerator.report().kernels, 10);
  Arguments cpu = words;
  cpu.emplace_back("--use_cpu");
  const ProcessResult on_cpu = run(cpu);
  ASSERT_EQ(on_cpu.code, 0) << on_cpu.err;
  const Json actual =
      parse_json(on_device.out.substr(0, on_device.out.find('\n')), "device", ErrorKind::kData);
  const Json expected =
      parse_json(on_cpu.out.substr(0, on_cpu.out.find('\n')), "CPU", ErrorKind::kData);
  ASSERT_EQ(actual.size(), 5U);
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i]["token"], expected[i]["token"]) << i;
    EXPECT_NEAR(actual[i]["score"].get<double>(), expected[i]["score"].get<double>(), 1e-6) << i;
  }
}

}  // namespace
}  // namespace finetune::testing
