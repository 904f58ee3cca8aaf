// SPDX-License-Identifier: MIT
#include "train/folder/space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr uint64_t kMegabyte = 1'000'000;
const SavedBytes kBytes{
    .scheduled = 100 * kMegabyte, .automatic = 100 * kMegabyte, .end = 30 * kMegabyte};

SavingFolder output(uint64_t free_megabytes, int64_t kept = 0) {
  return {.path = "out", .kept = kept, .free = free_megabytes * kMegabyte, .device = 1};
}
SavingFolder mirror(uint64_t free_megabytes, uint64_t device) {
  return {.path = "/drive/run",
          .is_mirror = true,
          .free = free_megabytes * kMegabyte,
          .device = device};
}
SpaceVerdict judge(const std::vector<SavingFolder>& folders, const SavesToCome& saves,
                   bool is_resumed = false) {
  return judge_space(folders, kBytes, saves, is_resumed);
}

TEST(Space, RefusesARunWhoseFirstCheckpointDoesNotFit) {
  const SpaceVerdict verdict = judge({output(99)}, {.left = 3});
  EXPECT_GOLDEN(verdict.error);
  EXPECT_THAT(verdict.warning, IsEmpty());
  EXPECT_THAT(judge({output(29)}, {.left = 3}).error, Not(HasSubstr("save_strategy")))
      << "which would not fit either";
}

TEST(Space, WarnsOfARunWhoseSecondCheckpointDoesNotFit) {
  const SpaceVerdict verdict = judge({output(199)}, {.left = 3, .limit = 1});
  EXPECT_THAT(verdict.error, IsEmpty());
  EXPECT_GOLDEN(verdict.warning);
  EXPECT_THAT(judge({output(200)}, {.left = 3, .limit = 1}).warning, IsEmpty());
}

TEST(Space, CountsWhatTheLimitKeepsAndTheOneBesideIt) {
  EXPECT_EQ(needed_bytes(output(0), kBytes, {.left = 9, .limit = 2}).most, 300 * kMegabyte);
  EXPECT_EQ(needed_bytes(output(0), kBytes, {.left = 9}).most, 1000 * kMegabyte);
  EXPECT_EQ(needed_bytes(output(0), kBytes, {.left = 1, .limit = 5}).most, 200 * kMegabyte);
  EXPECT_THAT(judge({output(500)}, {.left = 9}).warning, HasSubstr("set save_total_limit"));
  EXPECT_THAT(judge({output(250)}, {.left = 9, .limit = 2}).warning,
              HasSubstr("lower save_total_limit"));
}

TEST(Space, KnowsThatRotationFreesWhatIsThere) {
  EXPECT_EQ(needed_bytes(output(0, 2), kBytes, {.left = 9, .limit = 2}).most, 100 * kMegabyte);
  EXPECT_EQ(needed_bytes(output(0, 5), kBytes, {.left = 9, .limit = 2}).most, 100 * kMegabyte);
  EXPECT_EQ(needed_bytes(output(0, 1), kBytes, {.left = 9, .limit = 2}).most, 200 * kMegabyte);
}

TEST(Space, CountsOldCheckpointsThatASaveMayDeleteFirst) {
  const auto error = [](uint64_t free_megabytes, int64_t deletable) {
    SavingFolder folder = output(free_megabytes, 3);
    folder.deletable = deletable;
    return judge({folder}, {.left = 9, .limit = 2}, true).error;
  };
  EXPECT_GOLDEN(error(99, 0));
  EXPECT_THAT(error(12, 1), IsEmpty());
  EXPECT_GOLDEN(error(10, 1));
  EXPECT_THAT(error(0, 2), IsEmpty());
}

TEST(Space, NeverCountsTheLastCheckpointAsFree) {
  EXPECT_THAT(judge({output(99, 1)}, {.left = 9, .limit = 1}, true).error,
              AllOf(HasSubstr("99 MB"), HasSubstr("with save_total_limit 1")));
  EXPECT_THAT(judge({output(99, 1)}, {.left = 9, .limit = 2}, true).error,
              AllOf(HasSubstr("99 MB"), Not(HasSubstr("with save_total_limit 1"))));
}

TEST(Space, NeedsOnlyTheModelWhereNothingElseIsSaved) {
  const SavesToCome no{.on_schedule = false};
  EXPECT_GOLDEN(judge({output(29)}, no).error);
  EXPECT_THAT(judge({output(99)}, no).error, IsEmpty());
  EXPECT_GOLDEN(judge({output(99)}, no).warning) << "of an early stop";
  EXPECT_THAT(judge({output(100)}, no).warning, IsEmpty());
  const SavesToCome only_the_end{.trains = false, .left = 0};
  EXPECT_THAT(judge({output(30)}, only_the_end, true).warning, IsEmpty());
  EXPECT_GOLDEN(judge({output(29)}, only_the_end, true).error);
}

TEST(Space, CountsAMirrorOnTheSameFileSystemToo) {
  const SavesToCome saves{.left = 1};
  EXPECT_GOLDEN(judge({output(399), mirror(399, 1)}, saves).warning);
  EXPECT_GOLDEN(judge({output(199), mirror(199, 1)}, saves).error);
  const SpaceVerdict apart = judge({output(200), mirror(200, 2)}, saves);
  EXPECT_THAT(apart.error, IsEmpty());
  EXPECT_THAT(apart.warning, IsEmpty());
}

TEST(Space, NamesTheMirrorThatIsFull) {
  const SavesToCome saves{.left = 1};
  EXPECT_GOLDEN(judge({output(900), mirror(99, 2)}, saves).error);
  const SpaceVerdict under_way = judge({output(900), mirror(99, 2)}, saves, true);
  EXPECT_THAT(under_way.error, IsEmpty()) << "a mirror never stops a run that is under way";
  EXPECT_GOLDEN(under_way.warning);
}

TEST(Space, AddsTheTokenisedDataOfAMirror) {
  SavingFolder position = mirror(0, 2);
  position.other = 50 * kMegabyte;
  EXPECT_EQ(needed_bytes(position, kBytes, {.left = 1}).most, 250 * kMegabyte);
}

TEST(Space, RefusesNothingWhereTheFreeSpaceIsUnknown) {
  SavingFolder folder = output(0);
  folder.free = UINT64_MAX;
  const SpaceVerdict verdict = judge({folder}, {.left = 1'000'000});
  EXPECT_THAT(verdict.error, IsEmpty());
  EXPECT_THAT(verdict.warning, IsEmpty());
}

TEST(Space, HasTheMarginOfASave) { EXPECT_EQ(with_margin(400), 441U); }

}  // namespace
}  // namespace finetune
