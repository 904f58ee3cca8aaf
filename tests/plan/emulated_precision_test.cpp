// SPDX-License-Identifier: MIT
#include "finetune/plan/emulated_precision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(EmulatedPrecision, SaysWhatIsDoneInstead) {
  const std::string note = emulated_precision_note(Precision::kBFloat16, false);
  EXPECT_THAT(note, StartsWith("bf16: true: this processor has no bfloat16 instructions"));
  EXPECT_THAT(note, HasSubstr("stored in bfloat16, products are computed in float32"));
  EXPECT_THAT(note, HasSubstr("param_dtype: bfloat16 stores the weights so"));
  EXPECT_GOLDEN(emulated_precision_note(Precision::kFloat16, false));
}

TEST(EmulatedPrecision, SaysNothingWhereThereIsNothingToSay) {
  EXPECT_EQ(emulated_precision_note(Precision::kBFloat16, true), "");
  EXPECT_EQ(emulated_precision_note(Precision::kFloat16, true), "");
  EXPECT_EQ(emulated_precision_note(Precision::kFloat32, false), "");
}

}  // namespace
}  // namespace finetune
