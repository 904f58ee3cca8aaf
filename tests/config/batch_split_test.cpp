// SPDX-License-Identifier: MIT
#include "finetune/config/batch_split.h"

#include <gtest/gtest.h>

namespace finetune {
namespace {

TEST(BatchSplit, DividesTheSamplesOfAnUpdate) {
  const std::optional<BatchSplit> split = BatchSplit::of(48, 4, 3);
  ASSERT_TRUE(split);
  EXPECT_EQ(*split, (BatchSplit{.rows = 4, .accumulation = 4, .ranks = 3}));
  EXPECT_EQ(split->effective_batch(), 48);
  EXPECT_EQ(split->rank_batch(), 16);
  EXPECT_EQ(split->rows_of_all(), 12);
  EXPECT_EQ(split->micro_batches(), 12);
}

TEST(BatchSplit, IsNothingWhereRanksTimesRowsDoNotDivideTheBatch) {
  EXPECT_FALSE(BatchSplit::of(8, 3, 1));
  EXPECT_FALSE(BatchSplit::of(8, 8, 2));
  EXPECT_TRUE(BatchSplit::of(8, 4, 2));
}

int64_t next_rows(int64_t whole, int64_t rows) {
  const std::optional<BatchSplit> smaller = BatchSplit::of(whole, rows, 1)->next_smaller();
  return smaller ? smaller->rows : 0;
}

TEST(BatchSplit, HalvesAndKeepsTheBatch) {
  EXPECT_EQ(next_rows(8, 8), 4);
  EXPECT_EQ(next_rows(8, 1), 0);
  EXPECT_EQ(next_rows(3, 3), 1);
  EXPECT_EQ(next_rows(12, 12), 6);
  EXPECT_EQ(next_rows(12, 3), 1);
  EXPECT_EQ(next_rows(10, 5), 2);
  EXPECT_EQ(next_rows(35, 35), 7);
  for (int64_t whole = 1; whole < 200; ++whole) {
    std::optional<BatchSplit> split = BatchSplit::of(3 * whole, whole, 3);
    for (; split; split = split->next_smaller()) {
      EXPECT_EQ(split->effective_batch(), 3 * whole);
      EXPECT_EQ(split->ranks, 3);
    }
  }
}

TEST(BatchSplit, KeysAskForABatch) {
  TrainingArgs args;
  args.per_device_train_batch_size = 4;
  args.gradient_accumulation_steps = 3;
  EXPECT_EQ(asked_effective_batch(args, 2), 24);
  args.effective_batch_size = 32;
  EXPECT_EQ(asked_effective_batch(args, 2), 32) << "whatever the number of ranks";
}

}  // namespace
}  // namespace finetune
