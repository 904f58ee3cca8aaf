// SPDX-License-Identifier: MIT
// Copies that run concurrently with kernels: of saves, and of activations that are kept on the
// host. Each run is repeated with a planted fault: what orders streams, or makes the host wait for
// a copy, has no effect.
#include "accelerator/accelerator.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kToHost[] = "copy_to_host on another stream";
constexpr char kToDevice[] = "copy_to_device on another stream";

TinyRun::Keys brief(const TinyRun::Keys& more) {
  TinyRun::Keys keys = {{"max_steps", "4"},
                        {"save_steps", "2"},
                        {"save_total_limit", ""},
                        {"eval_strategy", "no"},
                        {"eval_steps", ""},
                        {"validation_file", ""},
                        {"dataloader_num_workers", "0"}};
  for (const auto& [key, value] : more) keys[key] = value;
  return keys;
}

const TinyRun::Keys kOffload = {{"gradient_checkpointing", "true"},
                                {"gradient_checkpointing_kwargs", "{offload: true}"},
                                {"save_strategy", "no"},
                                {"save_steps", ""}};

Accelerator::Environment ignoring(const std::string& name) {
  return {{"PRETEND_ACCELERATOR_IGNORE", name}};
}

TEST(AcceleratorOffload, CopiesOnAnotherStream) {
  const TinyRun run(brief(kOffload));
  Accelerator accelerator;
  const ProcessResult result = accelerator.train(run);
  ASSERT_EQ(result.code, 0) << result.err;
  const AcceleratorReport report = accelerator.report();
  EXPECT_GT(report.calls.at(kToHost), 0);
  EXPECT_EQ(report.calls.at(kToHost), report.calls.at(kToDevice));
}

TEST(AcceleratorOffload, FailsIfStreamsDoNotWait) {
  const TinyRun run(brief(kOffload));
  Accelerator accelerator;
  const ProcessResult result = accelerator.train(run, {}, ignoring("block"));
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("without waiting for it"));
}

TEST(AcceleratorSave, CopiesOnAnotherStream) {
  const TinyRun run(brief({}));
  Accelerator accelerator;
  const ProcessResult result = accelerator.train(run);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_GT(accelerator.report().calls.at(kToHost), 0);
}

TEST(AcceleratorSave, FailsIfStreamsDoNotWait) {
  const TinyRun run(brief({}));
  Accelerator accelerator;
  const ProcessResult result = accelerator.train(run, {}, ignoring("block"));
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("without waiting for it"));
}

// What is copied too late is NaN, which no checkpoint contains.
TEST(AcceleratorSave, IsRefusedIfTheHostDoesNotWait) {
  const TinyRun run(brief({}));
  Accelerator accelerator;
  const ProcessResult result = accelerator.train(run, {}, ignoring("synchronize"));
  EXPECT_NE(result.code, 0);
  EXPECT_FALSE(std::filesystem::exists(run.out("checkpoint-2")));
}

}  // namespace
}  // namespace finetune::testing
