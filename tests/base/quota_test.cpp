// SPDX-License-Identifier: MIT
#include "base/quota.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace finetune {
namespace {

constexpr uint32_t kComplete = QIF_BLIMITS | QIF_SPACE | QIF_BTIME;

dqblk quota(uint64_t hard_kib, uint64_t soft_kib, uint64_t used_bytes, uint64_t grace_end = 0) {
  dqblk block = {};
  block.dqb_bhardlimit = hard_kib;
  block.dqb_bsoftlimit = soft_kib;
  block.dqb_curspace = used_bytes;
  block.dqb_btime = grace_end;
  block.dqb_valid = kComplete;
  return block;
}

TEST(Quota, LeavesWhatTheHardLimitLeaves) {
  EXPECT_EQ(bytes_left(quota(100, 0, 2'400), 0), 100'000U);
  EXPECT_EQ(bytes_left(quota(100, 0, 102'400), 0), 0U);
  EXPECT_EQ(bytes_left(quota(100, 0, 200'000), 0), 0U) << "lowered since";
}

TEST(Quota, LeavesNothingOnceTheGracePeriodOfTheSoftLimitIsOver) {
  EXPECT_EQ(bytes_left(quota(100, 50, 62'400, 1'000), 999), 40'000U);
  EXPECT_EQ(bytes_left(quota(100, 50, 62'400, 1'000), 1'001), 0U);
  EXPECT_EQ(bytes_left(quota(0, 50, 62'400, 1'000), 1'001), 0U);
}

TEST(Quota, BindsNobodyWithoutALimit) {
  EXPECT_EQ(bytes_left(quota(0, 0, 1'000), 0), UINT64_MAX);
  dqblk unknown = quota(1, 1, 1'000'000);
  unknown.dqb_valid = 0;
  EXPECT_EQ(bytes_left(unknown, 0), UINT64_MAX);
}

TEST(Quota, CanBeAskedForOnAnyFileSystem) {
  const int descriptor = ::open("/", O_RDONLY | O_CLOEXEC);
  EXPECT_GT(quota_bytes_left(descriptor), 0U);
  ::close(descriptor);
  EXPECT_EQ(quota_bytes_left(-1), UINT64_MAX);
}

}  // namespace
}  // namespace finetune
