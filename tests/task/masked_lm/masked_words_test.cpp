// SPDX-License-Identifier: MIT
#include "task/loss/masked_words.h"

#include <gmock/gmock.h>

namespace finetune {
namespace {

using ::testing::ElementsAre;

TEST(MaskedWords, AreFilledWithIgnoredLabelsToAQuarterOfTheCells) {
  Batch batch;
  batch.rows = 2;
  batch.length = 20;
  batch.labels.assign(40, kIgnoredLabel);
  batch.labels[3] = 7;
  batch.labels[21] = 8;
  batch.full_rows = 2;
  MaskedWords words(batch, /*few_sizes=*/true);
  EXPECT_THAT(words.positions, ElementsAre(3, 21, 0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(words.labels, ElementsAre(7, 8, -100, -100, -100, -100, -100, -100, -100, -100));
  batch.full_rows = 4;
  EXPECT_EQ(MaskedWords(batch, true).size(), 20) << "of a smaller batch, as of a full one";
  EXPECT_EQ(MaskedWords(batch, false).size(), 2);
  batch.labels.assign(40, kIgnoredLabel);
  EXPECT_EQ(MaskedWords(batch, true).size(), 0);
}

}  // namespace
}  // namespace finetune
