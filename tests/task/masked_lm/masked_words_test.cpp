// SPDX-License-Identifier: MIT
#include "task/masked_lm/masked_words.h"

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
  MaskedWords words(batch);
  words.fill(batch);
  EXPECT_THAT(words.positions, ElementsAre(3, 21, 0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(words.labels, ElementsAre(7, 8, -100, -100, -100, -100, -100, -100, -100, -100));
  words.fill(batch);
  EXPECT_EQ(words.size(), 10) << "they are a multiple already";
}

}  // namespace
}  // namespace finetune
