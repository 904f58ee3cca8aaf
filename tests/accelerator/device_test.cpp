// SPDX-License-Identifier: MIT
// What the program reads from a GPU's driver and sets in torch, and how it exits if a GPU fails.
#include "accelerator/accelerator.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const TinyRun::Keys kBrief = {{"max_steps", "4"},
                              {"save_steps", "2"},
                              {"save_total_limit", ""},
                              {"eval_strategy", "no"},
                              {"eval_steps", ""},
                              {"validation_file", ""},
                              {"dataloader_num_workers", "0"}};

Accelerator::Environment gpu(const std::string& capability) {
  return {{"PRETEND_ACCELERATOR_CAPABILITY", capability}};
}

Accelerator::Environment fault(const std::string& text) {
  return {{"PRETEND_ACCELERATOR_FAULT", text}};
}

TEST(AcceleratorArithmetic, IsTensorFloat32WhereAskedForAndKnown) {
  const TinyRun run(kBrief);
  Accelerator accelerator;
  ASSERT_EQ(accelerator.train(run, {"--stop_at_step", "1"}, gpu("8.0 108")).code, 75);
  EXPECT_FALSE(accelerator.report().tf32);
  const ProcessResult result = accelerator.train(run, {"--tf32", "true"}, gpu("8.0 108"));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(accelerator.report().tf32);
}

TEST(AcceleratorArithmetic, RefusesTensorFloat32WhereItIsNot) {
  const TinyRun run(kBrief);
  Accelerator accelerator;
  const ProcessResult old = accelerator.train(run, {"--tf32", "true"}, gpu("7.5 40"));
  EXPECT_EQ(old.code, 2);
  EXPECT_THAT(old.err, HasSubstr("of compute capability 7.5; leave tf32 out"));
  const ProcessResult cpu = run.train({"--tf32", "true"});
  EXPECT_EQ(cpu.code, 2);
  EXPECT_THAT(cpu.err, HasSubstr("TensorFloat-32 needs an NVIDIA GPU of compute capability 8.0"));
}

TEST(AcceleratorArithmetic, WarnsOfBfloat16WithoutItsUnits) {
  const TinyRun run(kBrief);
  Accelerator accelerator;
  const Arguments bf16 = {"--bf16", "true", "--max_steps", "1", "--restart"};
  const ProcessResult old = accelerator.train(run, bf16, gpu("7.5 40"));
  ASSERT_EQ(old.code, 0) << old.err;
  EXPECT_THAT(old.err, HasSubstr("has no bfloat16 units"));
  const ProcessResult present = accelerator.train(run, bf16, gpu("8.0 108"));
  ASSERT_EQ(present.code, 0) << present.err;
  EXPECT_THAT(present.err, Not(HasSubstr("bfloat16 units")));
}

TEST(AcceleratorArithmetic, IsDeterministicWithFullDeterminism) {
  const TinyRun run(kBrief);
  Accelerator accelerator;
  ASSERT_EQ(accelerator.train(run, {"--max_steps", "1"}).code, 0);
  EXPECT_FALSE(accelerator.report().deterministic);
  EXPECT_EQ(accelerator.report().cublas_workspace, "");
  const ProcessResult result =
      accelerator.train(run, {"--full_determinism", "true", "--max_steps", "1", "--restart"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(accelerator.report().deterministic);
  EXPECT_EQ(accelerator.report().cublas_workspace, ":4096:8");
}

// A MIG partition has the architecture of the whole GPU, but its matrix products have other bits.
TEST(AcceleratorEnvironment, IsKeptAndComparedWhenARunResumes) {
  const TinyRun run(kBrief);
  Accelerator accelerator;
  ASSERT_EQ(accelerator.train(run, {"--stop_at_step", "2"}, gpu("9.0 132")).code, 75);
  const std::string state = read_file(run.out("checkpoint-2/finetune_state.json"));
  EXPECT_THAT(state, HasSubstr("compute capability 9.0, 132 multiprocessors, CUDA 13.0, NVRTC "
                               "13.0, plain kernels"));
  const ProcessResult same = accelerator.train(run, {"--stop_at_step", "3"}, gpu("9.0 132"));
  ASSERT_EQ(same.code, 75) << same.err;
  EXPECT_THAT(same.err, Not(HasSubstr("not bit-exact")));
  const ProcessResult slice = accelerator.train(run, {}, gpu("9.0 16"));
  ASSERT_EQ(slice.code, 0) << slice.err;
  EXPECT_THAT(slice.err, HasSubstr("not bit-exact from here: device"));
  EXPECT_THAT(slice.err, HasSubstr("16 multiprocessors"));
}

// A virtual GPU refuses the mapping of expandable segments at its first allocation.
TEST(AcceleratorFault, OfExpandableSegmentsTrainsWithoutThem) {
  const TinyRun run(kBrief);
  Accelerator accelerator;
  const ProcessResult result =
      accelerator.train(run, {}, fault("allocate 1 CUDA driver error: operation not supported"));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("this GPU refuses expandable segments of memory (CUDA driver "
                                    "error: operation not supported"));
}

// Without memory for a thread's handle, cuBLAS says that it is not initialised.
TEST(AcceleratorFault, OfCublasMemoryTakesFewerSamplesAtATime) {
  TinyRun::Keys keys = kBrief;
  keys["per_device_train_batch_size"] = "8";
  keys["gradient_accumulation_steps"] = "1";
  for (const std::string status : {"CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED"}) {
    SCOPED_TRACE(status);
    const TinyRun run(keys);
    Accelerator accelerator;
    const ProcessResult result = accelerator.train(
        run, {},
        fault("aten::addmm.out 20 CUDA error: " + status + " when calling `cublasCreate(handle)`"));
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("out of memory"));
    EXPECT_THAT(result.err, HasSubstr("4 x 2 samples instead of 8"));
  }
}

// Device memory can no longer be read, also not by a save in progress: checkpoint-2 must be
// complete before the fault. A new process resumes.
TEST(AcceleratorFault, OfALostGpuEndsWithoutASave) {
  TinyRun::Keys keys = kBrief;
  keys["async_save"] = "false";
  Accelerator accelerator;
  const TinyRun whole(keys);
  ASSERT_EQ(accelerator.train(whole).code, 0);
  const int64_t products = accelerator.report().calls.at("aten::addmm.out");
  const TinyRun run(keys);
  const ProcessResult lost =
      accelerator.train(run, {},
                        fault("aten::addmm.out " + std::to_string(products * 7 / 8) +
                              " CUDA error: an illegal memory access was encountered"));
  EXPECT_EQ(lost.code, 75) << lost.err;
  EXPECT_THAT(lost.err, HasSubstr("the GPU failed (CUDA error: an illegal memory access"));
  EXPECT_THAT(lost.err, HasSubstr("run the same command again to resume"));
  EXPECT_THAT(lost.err, Not(HasSubstr("internal error")));
  EXPECT_FALSE(std::filesystem::exists(run.out("checkpoint-3")));
  const ProcessResult resumed = accelerator.train(run);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("checkpoint-2"));
  EXPECT_TRUE(saved_tensors(run.out("checkpoint-4")) == saved_tensors(whole.out("checkpoint-4")));
}

TEST(AcceleratorFault, OfMemoryNamesWhatIsAllocatedAndReserved) {
  const TinyRun run(kBrief);
  Accelerator accelerator;
  const ProcessResult result =
      accelerator.train(run, {}, {{"PRETEND_ACCELERATOR_BYTES", "600000"}});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("out of memory on the device in step 1\n  at most "));
  EXPECT_THAT(result.err, HasSubstr("reserved by this process"));
}

// Plans a model of 1.1 billion parameters from shapes only, without allocating it.
TEST(AcceleratorMemory, OfALargeModelIsPlannedWithinWhatTheGpuHas) {
  TinyRun::Keys keys = kBrief;
  keys["config_overrides"] =
      "{vocab_size: 52000, num_hidden_layers: 48, num_attention_heads: 25, hidden_size: 1500, "
      "intermediate_size: 4096, max_position_embeddings: 514, type_vocab_size: 1}";
  keys["tokenizer_name"] = source_dir() + "/tests/fixtures/tokenizers/lighthouse";
  keys["max_seq_length"] = "128";
  keys["per_device_train_batch_size"] = "16";
  keys["gradient_accumulation_steps"] = "1";
  const Arguments in_backward = {"--optimizer_in_backward",
                                 "true",
                                 "--param_dtype",
                                 "bfloat16",
                                 "--optim",
                                 "adamw_companded_8bit",
                                 "--max_grad_norm",
                                 "0",
                                 "--gradient_checkpointing",
                                 "true"};
  Accelerator accelerator;
  for (const int64_t gibibytes : {16, 8, 6}) {
    const TinyRun run(keys);
    const std::string bytes = std::to_string(gibibytes << 30);
    Arguments words = {"plan", run.config(), "--json", "--memory_budget", bytes};
    if (gibibytes == 6) words.insert(words.end(), in_backward.begin(), in_backward.end());
    const ProcessResult result =
        accelerator.run(finetune_command(words), {{"PRETEND_ACCELERATOR_BYTES", bytes}});
    ASSERT_EQ(result.code, 0) << gibibytes << ": " << result.err;
    const Json plan = parse_json(result.out, "plan", ErrorKind::kData);
    EXPECT_TRUE(plan["fits"].get<bool>()) << gibibytes;
    EXPECT_LE(plan["peak"].get<int64_t>(), gibibytes << 30);
    EXPECT_GT(plan["peak"].get<int64_t>(), int64_t{4} << 30);
  }
}

}  // namespace
}  // namespace finetune::testing
