// SPDX-License-Identifier: MIT
// Whole runs with the kernels of src/kernels/cuda/, each thread a fiber on the CPU.
#include "accelerator/accelerator.h"

namespace finetune::testing {
namespace {

struct KernelsCase {
  std::string name;
  TinyRun::Keys keys;
  double tolerance = 0.0;  // of losses: how far 16 bits are from another order of sums
  std::string kernel = "cuda::add_norm_backward";  // which must have run
  std::string gpu = "";  // what its driver reports; where there is none torch's attention is unused
  friend void PrintTo(const KernelsCase& one, std::ostream* out) { *out << one.name; }
};

// Of two layers, with two query heads for a key head.
TinyRun::Keys decoder(const TinyRun::Keys& more, const std::string& overrides = "") {
  TinyRun::Keys keys = {{"task", "clm"},
                        {"model_type", "llama"},
                        {"mlm_probability", ""},
                        {"config_overrides",
                         "{num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 1, "
                         "hidden_size: 64, intermediate_size: 64" +
                             overrides + "}"}};
  for (const auto& [key, value] : more) keys[key] = value;
  return keys;
}

const std::vector<KernelsCase> kKernelsCases = {
    {"fp32", {}, 2e-5},
    {"fp16", {{"fp16", "true"}, {"gradient_accumulation_steps", "2"}}, 2e-2},
    {"full_determinism", {{"full_determinism", "true"}}, 2e-5},
    {"in_backward",
     {{"optimizer_in_backward", "true"},
      {"max_grad_norm", "0"},
      {"gradient_accumulation_steps", "1"}},
     2e-5},
    {"block_sparse",
     {{"model_type", "big_bird"},
      {"config_overrides",
       "{num_hidden_layers: 2, num_attention_heads: 2, hidden_size: 32, intermediate_size: 64, "
       "max_position_embeddings: 64, block_size: 4, num_random_blocks: 1}"},
      {"max_seq_length", "40"},
      {"pad_to_max_length", "true"}},
     2e-5},
    {"tiled_attention",
     {{"bf16", "true"},
      {"config_overrides",
       "{num_hidden_layers: 2, num_attention_heads: 2, hidden_size: 64, intermediate_size: 64, "
       "max_position_embeddings: 130}"},
      {"max_seq_length", "128"}},
     2e-2,
     "cuda::tiled_attention_of_keys"},
    {"tiled_attention_of_a_decoder", decoder({{"fp16", "true"}}), 2e-2,
     "cuda::tiled_attention_of_keys"},
    {"flash_attention", decoder({{"bf16", "true"}, {"line_by_line", "true"}}), 5e-3,
     "aten::_flash_attention_backward", "8.0 108"},
    // A window of 8 changes the losses by 6e-3.
    {"flash_attention_in_a_window",
     decoder({{"fp16", "true"}, {"model_type", "mistral"}}, ", sliding_window: 5"), 5e-4,
     "aten::_flash_attention_backward", "9.0 132"},
    {"efficient_attention", decoder({}), 2e-5, "aten::_efficient_attention_backward", "7.5 40"},
    {"efficient_attention_of_sequences", decoder({{"line_by_line", "true"}}), 2e-5,
     "aten::_efficient_attention_backward", "7.5 40"},
    {"all_techniques",
     {{"bf16", "true"},
      {"optim", "adamw_companded_8bit"},
      {"param_dtype", "bfloat16+int8"},
      {"grad_accum_dtype", "bfloat16"},
      {"gradient_checkpointing", "true"},
      {"gradient_checkpointing_kwargs", "{selective: true}"}},
     5e-2}};

std::vector<double> logged_losses(const TinyRun& run) {
  std::vector<double> values;
  for (const Json& entry : log_without_times(run.out())) {
    if (entry.contains("loss")) values.push_back(entry["loss"].get<double>());
  }
  return values;
}

class AcceleratorCudaKernels : public ::testing::TestWithParam<KernelsCase> {};
INSTANTIATE_TEST_SUITE_P(Of, AcceleratorCudaKernels, ::testing::ValuesIn(kKernelsCases),
                         [](const auto& one) { return one.param.name; });

TEST_P(AcceleratorCudaKernels, HaveTheCpusLossesAndResumeInTheSameBits) {
  TinyRun::Keys keys = {{"max_steps", "4"},       {"save_steps", "2"},
                        {"save_total_limit", ""}, {"eval_strategy", "no"},
                        {"validation_file", ""},  {"dataloader_num_workers", "0"}};
  for (const auto& [key, value] : GetParam().keys) keys[key] = value;
  const TinyRun on_cpu(keys);
  const ProcessResult cpu = on_cpu.train({"--use_cpu", "true"});
  ASSERT_EQ(cpu.code, 0) << cpu.err;

  const TinyRun on_device(keys);
  Accelerator accelerator;
  Accelerator::Environment environment = {{"PRETEND_ACCELERATOR_KERNELS", "cuda"}};
  if (!GetParam().gpu.empty()) environment["PRETEND_ACCELERATOR_CAPABILITY"] = GetParam().gpu;
  const ProcessResult whole = accelerator.train(on_device, {}, environment);
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_TRUE(accelerator.report().calls.contains(GetParam().kernel));
  const std::vector<double> expected = logged_losses(on_cpu);
  const std::vector<double> actual = logged_losses(on_device);
  ASSERT_EQ(actual.size(), 4U);
  ASSERT_EQ(expected.size(), 4U);
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], GetParam().tolerance) << i;
  }

  const auto bits = saved_tensors(on_device.out("checkpoint-4"));
  keep_only_checkpoint(on_device, 2);
  const ProcessResult resumed = accelerator.train(on_device, {}, environment);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_TRUE(saved_tensors(on_device.out("checkpoint-4")) == bits) << "other bits";
}

}  // namespace
}  // namespace finetune::testing
