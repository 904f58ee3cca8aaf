// SPDX-License-Identifier: MIT
#include "finetune/base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "support/golden.h"

namespace finetune {
namespace {

TEST(Error, HasTheContractsExitCodes) {
  const auto code = [](ErrorKind kind) { return Error(kind, "x").exit_code(); };
  EXPECT_EQ(code(ErrorKind::kUsage), 2);
  EXPECT_EQ(code(ErrorKind::kConfig), 2);
  EXPECT_EQ(code(ErrorKind::kCheckpoint), 3);
  EXPECT_EQ(code(ErrorKind::kBusy), 5);
  EXPECT_EQ(code(ErrorKind::kData), 1);
  EXPECT_EQ(code(ErrorKind::kDevice), 1);
  EXPECT_EQ(code(ErrorKind::kIo), 1);
}

TEST(Check, ThrowsWithPositionConditionAndMessage) {
  EXPECT_NO_THROW(FT_CHECK(1 + 1 == 2, "arithmetic"));
  EXPECT_GOLDEN(testing::message_of<std::logic_error>([] { FT_CHECK(1 + 1 == 3, "arithmetic"); }));
}

}  // namespace
}  // namespace finetune
