// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "finetune/data/collate.h"
#include "finetune/data/token_dataset.h"
#include "finetune/task/task.h"
#include "task/clm/clm.h"
#include "task/gradients_of.h"
#include "task/loss/masked_words.h"
#include "task/loss/model_input.h"
#include "task/loss/words_task.h"

namespace finetune {
namespace {

const c10::Device kClmDevice(c10::kCPU);

std::unique_ptr<Model> tiny_decoder(const ModelOptions& options = {}) {
  ModelConfig config = default_model_config("llama");
  config.vocab_size = 30;
  config.hidden_size = 16;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.decoder.num_key_value_heads = 1;
  config.decoder.head_dim = 8;
  config.intermediate_size = 32;
  config.max_position_embeddings = 16;
  return make_model(std::nullopt, config, 5, kClmDevice, options);
}

// Four texts of different lengths; the last has nothing to predict.
const TokenDataset& clm_texts() {
  static const TokenDataset texts(
      {.ids = {4, 5, 6, 7, 2, 8, 9, 10, 11, 12, 13, 14, 15, 16}, .offsets = {0, 5, 7, 13, 14}});
  return texts;
}

Batch clm_rows(int64_t first, int64_t count) {
  std::vector<SampleKey> keys;
  for (int64_t i = 0; i < count; ++i) keys.push_back({.index = first + i});
  Batch batch = CausalLmCollator({.pad_id = 1}).collate(clm_texts(), keys);
  batch.first_position = first;
  return batch;
}

TEST(CausalLmTask, MicroBatchesWithUnequalTargetsEqualOneLargeBatch) {
  const auto whole = tiny_decoder();
  const auto cut = tiny_decoder();
  EXPECT_EQ(clm_rows(0, 4).targets, 10);
  const double one =
      gradients_of({clm_rows(0, 4)}, *make_causal_lm_task(*whole, kClmDevice, {}), 10);
  const double many = gradients_of({clm_rows(0, 1), clm_rows(1, 2), clm_rows(3, 1)},
                                   *make_causal_lm_task(*cut, kClmDevice, {}), 10);
  EXPECT_NEAR(one, many, 1e-6);
  expect_close_gradients(*whole, *cut);
}

TEST(CausalLmTask, EvaluatesInChunksWhatTheLogitsSay) {
  const auto model = tiny_decoder({.fused = true, .head_rows_per_chunk = 3});
  const Batch batch = clm_rows(0, 4);
  const Outputs outputs = make_causal_lm_task(*model, kClmDevice, {})->evaluate(batch);
  const MaskedWords words(batch);
  const Tensor logits = model->logits(make_model_input(batch, kClmDevice, std::nullopt),
                                      to_device(words.positions, kClmDevice));
  EXPECT_TRUE(at::equal(outputs.best, logits.argmax(-1)));
  const Tensor labels = to_device(words.labels, kClmDevice);
  const Tensor losses = logits.logsumexp(-1) - logits.gather(1, labels.unsqueeze(1)).squeeze(1);
  EXPECT_NEAR(outputs.loss, losses.mean().item<double>(), 1e-6);
  EXPECT_EQ(outputs.targets, 10);
  EXPECT_FALSE(outputs.logits.defined());
}

TEST(CausalLmTask, NoTokenSeesWhatItIsToPredict) {
  const auto model = tiny_decoder();
  Batch batch = clm_rows(0, 1);
  const auto task = make_causal_lm_task(*model, kClmDevice, {});
  const Tensor before = task->evaluate(batch).best.clone();
  batch.input_ids[4] = 29;  // the last token, which only the one before predicts
  const Tensor after = task->evaluate(batch).best;
  EXPECT_TRUE(at::equal(before, after));
}

// The reference computes every token.
TEST(CausalLmTask, HasTheLossAndGradientsOfAllTokensWhereSomeFollowTheLastLabel) {
  const auto fused = tiny_decoder();
  const auto plain = tiny_decoder({.fused = false});
  Batch batch = clm_rows(0, 4);
  int64_t row_end = batch.length - 1;
  for (; row_end < std::ssize(batch.labels); row_end += batch.length) {
    for (const int64_t back : {1, 2}) batch.labels[static_cast<size_t>(row_end - back)] = -100;
  }
  batch.targets = std::ranges::count_if(batch.labels, [](int64_t label) { return label >= 0; });
  ASSERT_GT(batch.targets, 3);
  const auto targets = batch.targets;
  const double one = gradients_of({batch}, *make_causal_lm_task(*fused, kClmDevice, {}), targets);
  const double all = gradients_of({batch}, *make_causal_lm_task(*plain, kClmDevice, {}), targets);
  EXPECT_NEAR(one, all, 1e-6);
  expect_close_gradients(*fused, *plain);
}

TEST(CausalLmTask, GivesNothingForABatchWithoutTargets) {
  const auto model = tiny_decoder();
  const auto task = make_causal_lm_task(*model, kClmDevice, {});
  EXPECT_FALSE(task->loss_sums(clm_rows(3, 1), {})[0].defined());
  EXPECT_EQ(task->evaluate(clm_rows(3, 1)).targets, 0);
}

}  // namespace
}  // namespace finetune
