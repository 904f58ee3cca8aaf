// SPDX-License-Identifier: MIT
#include "task/loss/model_input.h"

#include <gmock/gmock.h>

#include "finetune/task/task.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ModelInput, FullRowsRepeatTheLastRow) {
  Batch batch;
  batch.rows = 2;
  batch.length = 3;
  batch.full_rows = 4;
  batch.input_ids = {1, 2, 3, 4, 5, 0};
  batch.attention_mask = {1, 1, 1, 1, 1, 0};
  batch.tokens = 5;
  const Batch full = with_full_rows(batch);
  EXPECT_EQ(full.rows, 4);
  EXPECT_THAT(full.input_ids, ElementsAre(1, 2, 3, 4, 5, 0, 4, 5, 0, 4, 5, 0));
  EXPECT_THAT(full.attention_mask, ElementsAre(1, 1, 1, 1, 1, 0, 1, 1, 0, 1, 1, 0));
  EXPECT_THAT(full.token_type_ids, IsEmpty());
  EXPECT_LT(full.tokens, full.rows * full.length) << "it has padding";
  batch.tokens = 6;
  EXPECT_EQ(with_full_rows(batch).tokens, 12) << "it has none";
}

TEST(ModelInput, RealRowsAreThoseOfTheBatch) {
  Batch batch;
  batch.rows = 2;
  const Tensor outputs = to_device(std::vector<int64_t>{1, 2, 3, 4}, c10::Device(c10::kCPU));
  EXPECT_EQ(real_rows(outputs, batch).size(0), 2);
  EXPECT_TRUE(real_rows(outputs.narrow(0, 0, 2), batch).is_alias_of(outputs));
}

}  // namespace
}  // namespace finetune
