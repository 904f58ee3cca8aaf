// SPDX-License-Identifier: MIT
// The CUDA kernels as a GPU's user gets them: compiled by NVRTC, kept on disk, loaded and launched
// by the driver. The libraries are those of cuda/, and the kernels run on the CPU.
#include <filesystem>

#include "accelerator/accelerator.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const TinyRun::Keys kFourSteps = {{"max_steps", "4"},
                                  {"save_steps", "2"},
                                  {"save_total_limit", ""},
                                  {"eval_strategy", "no"},
                                  {"eval_steps", ""},
                                  {"validation_file", ""},
                                  {"dataloader_num_workers", "0"}};

class AcceleratorDriver : public ::testing::Test {
 protected:
  AcceleratorDriver() {
    const std::string folder = std::filesystem::path(pretend_cuda_path()).parent_path();
    environment_ = {{"LD_PRELOAD", pretend_accelerator_path() + ":" + pretend_cuda_path()},
                    {"LD_LIBRARY_PATH", folder},
                    {"PRETEND_ACCELERATOR_KERNELS", "driver"},
                    {"PRETEND_ACCELERATOR_CAPABILITY", "7.5 40"},
                    {"PRETEND_CUDA_REPORT", report_},
                    {"XDG_CACHE_HOME", caches_.path()}};
  }

  ProcessResult train(const TinyRun& run, const Accelerator::Environment& more = {},
                      const Arguments& arguments = {}) {
    std::filesystem::remove(report_);
    Accelerator::Environment environment = environment_;
    for (const auto& [name, value] : more) environment[name] = value;
    return accelerator_.train(run, arguments, environment);
  }
  // Calls of a function of CUDA's libraries by the latest process.
  [[nodiscard]] int64_t calls(const std::string& name) const {
    if (!std::filesystem::exists(report_)) return 0;
    const Json json = parse_json(read_file(report_), report_, ErrorKind::kData);
    return json.value(name, int64_t{0});
  }
  [[nodiscard]] std::vector<std::filesystem::path> kept_kernels() const {
    std::vector<std::filesystem::path> paths;
    const std::string folder = caches_ / "finetune/kernels";
    if (!std::filesystem::exists(folder)) return paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      paths.push_back(entry.path());
    }
    return paths;
  }
  [[nodiscard]] Accelerator& accelerator() { return accelerator_; }

 private:
  TemporaryFolder caches_;
  TemporaryFolder reports_;
  std::string report_ = reports_ / "calls.json";
  Accelerator::Environment environment_;
  Accelerator accelerator_;
};

TEST_F(AcceleratorDriver, TrainsWithTheBitsOfTheKernelsAndCompilesThemOnce) {
  const TinyRun expected(kFourSteps);
  ASSERT_EQ(accelerator()
                .train(expected, {},
                       {{"PRETEND_ACCELERATOR_KERNELS", "cuda"},
                        {"PRETEND_ACCELERATOR_CAPABILITY", "7.5 40"}})
                .code,
            0);
  const auto bits = saved_tensors(expected.out("checkpoint-4"));

  const TinyRun run(kFourSteps);
  const ProcessResult first = train(run);
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("compiling CUDA kernels for sm_75 with NVRTC 13.0, once"));
  EXPECT_TRUE(saved_tensors(run.out("checkpoint-4")) == bits) << "other bits";
  const int64_t compiled = calls("nvrtcCompileProgram");
  EXPECT_GT(compiled, 8);
  EXPECT_EQ(calls("cuModuleLoadData"), compiled);
  EXPECT_GT(calls("cuLaunchKernel"), 100);
  EXPECT_EQ(kept_kernels().size(), static_cast<size_t>(compiled));

  keep_only_checkpoint(run, 2);
  const ProcessResult second = train(run);
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_THAT(second.err, Not(HasSubstr("compiling CUDA kernels")));
  EXPECT_EQ(calls("nvrtcCompileProgram"), 0);
  EXPECT_EQ(calls("cuModuleLoadData"), compiled);
  EXPECT_TRUE(saved_tensors(run.out("checkpoint-4")) == bits) << "other bits";
}

TEST_F(AcceleratorDriver, CompilesDamagedAndForeignCodeAgain) {
  const TinyRun run(kFourSteps);
  ASSERT_EQ(train(run, {}, {"--stop_at_step", "1"}).code, 75);
  const auto kept = kept_kernels();
  ASSERT_GT(kept.size(), 8U);
  std::filesystem::resize_file(kept[0], 10);
  std::filesystem::remove(kept[1]);
  ASSERT_EQ(train(run, {}, {"--stop_at_step", "2"}).code, 75);
  EXPECT_EQ(calls("nvrtcCompileProgram"), 2);
  EXPECT_EQ(kept_kernels().size(), kept.size());
  ASSERT_EQ(
      train(run, {{"PRETEND_ACCELERATOR_CAPABILITY", "8.9 60"}}, {"--stop_at_step", "3"}).code, 75);
  EXPECT_EQ(calls("nvrtcCompileProgram"), static_cast<int64_t>(kept.size()))
      << "code for another GPU has other keys";
}

TEST_F(AcceleratorDriver, RunsOnNewerGpusThanTheCompilerKnows) {
  const TinyRun run(kFourSteps);
  const ProcessResult result =
      train(run, {{"PRETEND_ACCELERATOR_CAPABILITY", "11.0 40"}}, {"--stop_at_step", "1"});
  ASSERT_EQ(result.code, 75) << result.err;
  EXPECT_THAT(result.err, HasSubstr("compiling CUDA kernels for sm_110"));
  EXPECT_GT(calls("cuLaunchKernel"), 50) << "as PTX, which the driver compiles";
}

TEST_F(AcceleratorDriver, LeavesItToTorchWhereKernelsCannotBeUsed) {
  const TinyRun run(kFourSteps);
  const std::vector<std::pair<Accelerator::Environment, std::string>> cases = {
      {{{"PRETEND_CUDA_FAULT", "cuModuleLoadData 1 209"}},
       "CUDA kernels cannot be used: CUDA error: no kernel image is available for execution on the "
       "device (209, column_sums)"},
      {{{"PRETEND_CUDA_FAULT", "cuDevicePrimaryCtxRetain 1 999"}},
       "CUDA error: unknown (999, cuDevicePrimaryCtxRetain)"},
      {{{"PRETEND_CUDA_FAULT", "nvrtcCompileProgram 1 6"}},
       "NVRTC 13.0 cannot compile column_sums.cu: NVRTC_ERROR_COMPILATION"},
      {{{"PRETEND_ACCELERATOR_CAPABILITY", "7.0 40"}},
       "NVRTC knows no architecture as old as sm_70"},
      {{{"LD_PRELOAD", pretend_accelerator_path()}}, "torch has loaded no libcudart"},
      {{{"FINETUNE_CUDA_KERNELS", "0"}}, "CUDA kernels are off (FINETUNE_CUDA_KERNELS=0)"}};
  for (const auto& [environment, text] : cases) {
    const ProcessResult result = train(run, environment, {"--max_steps", "1", "--restart"});
    ASSERT_EQ(result.code, 0) << text << "\n" << result.err;
    EXPECT_THAT(result.err, HasSubstr(text));
    EXPECT_THAT(result.err, HasSubstr("torch's operators compute instead"));
    EXPECT_EQ(calls("cuLaunchKernel"), 0);
  }
}

// Code 2 where a kernel's code is loaded, in the backward pass, say: fewer samples at a time, and a
// second attempt at the same code after torch's cache is emptied.
TEST_F(AcceleratorDriver, SplitsTheBatchWhereCodeDoesNotFit) {
  const TinyRun run(kFourSteps);
  const ProcessResult result = train(run, {{"PRETEND_CUDA_FAULT", "cuModuleLoadData 5 2"}});
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("out of memory"));
  EXPECT_THAT(result.err, HasSubstr("samples instead of 4 at a time"));
  EXPECT_THAT(result.err, Not(HasSubstr("internal error")));
  EXPECT_GE(calls("cuModuleLoadData"), 8);  // two attempts each time
}

TEST_F(AcceleratorDriver, ReportsALaunchThatFailsAndResumes) {
  TinyRun::Keys keys = kFourSteps;
  keys["async_save"] = "false";  // checkpoint-2 is complete before the fault
  const TinyRun run(keys);
  const ProcessResult whole = train(run);
  ASSERT_EQ(whole.code, 0) << whole.err;
  const auto bits = saved_tensors(run.out("checkpoint-4"));
  const int64_t launches = calls("cuLaunchKernel");
  const std::string late = std::to_string(launches - launches / 8);  // in the last update
  const ProcessResult failed =
      train(run, {{"PRETEND_CUDA_FAULT", "cuLaunchKernel " + late + " 700"}}, {"--restart"});
  EXPECT_EQ(failed.code, 75) << failed.err;
  EXPECT_THAT(
      failed.err,
      HasSubstr("the GPU failed (CUDA error: an illegal memory access was encountered (700"));
  EXPECT_TRUE(std::filesystem::exists(run.out("checkpoint-2")));
  const ProcessResult resumed = train(run);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("resuming"));
  EXPECT_TRUE(saved_tensors(run.out("checkpoint-4")) == bits) << "other bits";
}

}  // namespace
}  // namespace finetune::testing
