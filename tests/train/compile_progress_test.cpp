// SPDX-License-Identifier: MIT
#include "train/session/compile_progress.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "finetune/base/log.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;

TEST(CompileProgress, SaysAfterAStepWhatItCompiled) {
  int64_t programs = 100;
  CompileProgress progress({.programs = [&] { return programs; }});
  progress.start(7);
  ::testing::internal::CaptureStderr();
  programs = 160;
  progress.after_step(8);
  progress.after_step(9);
  programs = 161;
  progress.after_step(10);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("step 8: XLA compiled 60 programs"));
  EXPECT_THAT(said, Not(HasSubstr("step 9")));
  EXPECT_THAT(said, HasSubstr("step 10: XLA compiled 1 program "));
}

TEST(CompileProgress, SaysInALongStepThatItGoesOn) {
  std::atomic<int64_t> programs = 0;
  ::testing::internal::CaptureStderr();
  {
    CompileProgress progress({.seconds = 0.01, .programs = [&] { return ++programs; }});
    progress.start(0);
    while (programs < 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("step 1: XLA is compiling: "));
}

TEST(CompileProgress, IsSilentWhereNothingIsCompiled) {
  CompileProgress progress(compile_progress_of(c10::Device(c10::kCPU)));
  progress.start(0);
  ::testing::internal::CaptureStderr();
  progress.after_step(1);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace finetune
