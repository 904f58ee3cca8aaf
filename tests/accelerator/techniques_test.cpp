// SPDX-License-Identifier: MIT
// Memory techniques on a device: each of the runs that together contain every pair, resumed from
// its checkpoint, ends with the same bits.
#include "accelerator/accelerator.h"
#include "integration/technique_rows.h"

namespace finetune::testing {
namespace {

class AcceleratorTechniques : public ::testing::TestWithParam<TechniqueRow> {};
INSTANTIATE_TEST_SUITE_P(Pairs, AcceleratorTechniques, ::testing::ValuesIn(covering_rows()),
                         [](const auto& row) { return technique_name(row.param); });

TEST_P(AcceleratorTechniques, ResumeInTheSameBits) {
  const TinyRun run(technique_keys(GetParam()));
  Accelerator accelerator;
  const ProcessResult whole = accelerator.train(run);
  ASSERT_EQ(whole.code, 0) << whole.err;
  const auto expected = saved_tensors(run.out("checkpoint-4"));
  ASSERT_NE(expected.at("model.safetensors"), read_file(run.out("checkpoint-2/model.safetensors")));
  keep_only_checkpoint(run, 2);
  const ProcessResult resumed = accelerator.train(run);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, ::testing::HasSubstr("checkpoint-2"));
  EXPECT_TRUE(saved_tensors(run.out("checkpoint-4")) == expected) << "other bits";
}

}  // namespace
}  // namespace finetune::testing
