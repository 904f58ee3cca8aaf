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

// Decoders: the label of a token is the next one, so the last one has none.
TEST(ModelInput, LeavesOutWhatFollowsTheLastLabelOfACausalModelsRows) {
  Batch batch;
  batch.rows = 2;
  batch.length = 4;
  batch.input_ids = {1, 2, 3, 4, 5, 6, 7, 0};
  batch.attention_mask = {1, 1, 1, 1, 1, 1, 1, 0};
  batch.tokens = 7;
  batch.labels = {-100, 3, -100, -100, 6, 7, -100, -100};
  const c10::Device device(c10::kCPU);
  const ModelInput causal = make_model_input(batch, device, {}, /*is_causal=*/true);
  EXPECT_THAT(causal.layout->offsets, ElementsAre(0, 2, 4));
  EXPECT_THAT(causal.layout->whole_lengths, ElementsAre(4, 3));
  EXPECT_FALSE(causal.layout->mask.defined());
  EXPECT_THAT(make_model_input(batch, device, {}).layout->offsets, ElementsAre(0, 4, 7));
  batch.labels.assign(8, -100);
  EXPECT_THAT(make_model_input(batch, device, {}, true).layout->offsets, ElementsAre(0, 1, 2));
  // Without padding: only where it saves something.
  batch.attention_mask.back() = 1;
  batch.tokens = 8;
  EXPECT_THAT(make_model_input(batch, device, {}, true).layout->offsets, ElementsAre(0, 1, 2));
  batch.labels.assign(8, 1);
  EXPECT_EQ(make_model_input(batch, device, {}, true).layout, nullptr);
  batch.attention_mask[1] = 0;
  batch.tokens = 7;
  batch.labels[3] = batch.labels[7] = -100;
  const ModelInput with_hole = make_model_input(batch, device, {}, true);
  ASSERT_TRUE(with_hole.layout->mask.defined());
  EXPECT_EQ(with_hole.layout->mask.sum().item<int64_t>(), 5);
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
