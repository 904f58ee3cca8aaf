// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "finetune/task/metrics.h"
#include "finetune/task/task.h"
#include "task/gradients_of.h"
#include "task/loss/words_task.h"
#include "task/masked_lm/masked_lm.h"

namespace finetune {
namespace {

const c10::Device kMlmDevice(c10::kCPU);

std::unique_ptr<Model> tiny_model() {
  ModelConfig config;
  config.vocab_size = 30;
  config.hidden_size = 16;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.intermediate_size = 32;
  config.max_position_embeddings = 12;
  return make_model(std::nullopt, config, 5, kMlmDevice);
}

// Rows of different lengths with different numbers of targets, as a padded batch of `count` rows
// from row `first` on.
Batch mlm_rows(int64_t first, int64_t count) {
  const std::vector<std::vector<int64_t>> ids = {
      {0, 4, 5, 6, 2}, {0, 7, 2}, {0, 8, 9, 10, 11, 12, 2}, {0, 13, 14, 2}};
  const std::vector<std::vector<int64_t>> labels = {{-100, 9, -100, 6, -100},
                                                    {-100, 7, -100},
                                                    {-100, 8, 9, 10, -100, 3, -100},
                                                    {-100, -100, -100, -100}};
  Batch batch;
  batch.rows = count;
  batch.first_position = first;
  for (int64_t r = first; r < first + count; ++r) {
    batch.length = std::max(batch.length, static_cast<int64_t>(ids[static_cast<size_t>(r)].size()));
  }
  for (int64_t r = first; r < first + count; ++r) {
    for (size_t t = 0; t < static_cast<size_t>(batch.length); ++t) {
      const auto& row = ids[static_cast<size_t>(r)];
      const bool there = t < row.size();
      batch.input_ids.push_back(there ? row[t] : 1);
      batch.attention_mask.push_back(there ? 1 : 0);
      batch.labels.push_back(there ? labels[static_cast<size_t>(r)][t] : kIgnoredLabel);
      batch.tokens += there ? 1 : 0;
      batch.targets += batch.labels.back() != kIgnoredLabel ? 1 : 0;
    }
  }
  return batch;
}

TEST(MaskedLm, MicroBatchesWithUnequalTargetsEqualOneLargeBatch) {
  const auto whole = tiny_model();
  const auto cut = tiny_model();
  const double one =
      gradients_of({mlm_rows(0, 4)}, *make_masked_lm_task(*whole, kMlmDevice, {}), 7);
  const double many = gradients_of({mlm_rows(0, 1), mlm_rows(1, 2), mlm_rows(3, 1)},
                                   *make_masked_lm_task(*cut, kMlmDevice, {}), 7);
  EXPECT_NEAR(one, many, 1e-6);
  expect_close_gradients(*whole, *cut);
}

TEST(MaskedLm, ABatchWithoutTargetsHasNoLoss) {
  const auto model = tiny_model();
  const auto task = make_masked_lm_task(*model, kMlmDevice, {});
  EXPECT_FALSE(task->loss_sums(mlm_rows(3, 1), {})[0].defined());
  EXPECT_EQ(task->count_targets(mlm_rows(3, 1))[0], 0);
}

TEST(MaskedLm, AFreshModelsLossIsThatOfGuessing) {
  const auto model = tiny_model();
  const auto task = make_masked_lm_task(*model, kMlmDevice, {});
  const Outputs result = task->evaluate(mlm_rows(0, 4));
  EXPECT_EQ(result.targets, 7);
  EXPECT_NEAR(result.loss, std::log(30.0), 0.3);
}

TEST(MaskedLm, LabelSmoothingRaisesTheLossOfACertainModel) {
  const auto model = tiny_model();
  const auto plain = make_masked_lm_task(*model, kMlmDevice, {})->evaluate(mlm_rows(0, 4));
  const auto smooth = make_masked_lm_task(*model, kMlmDevice, {.label_smoothing_factor = 0.1})
                          ->evaluate(mlm_rows(0, 4));
  EXPECT_NE(plain.loss, smooth.loss);
  EXPECT_TRUE(plain.logits.equal(smooth.logits));
}

TEST(MaskedLm, AccuracyCountsTheMostProbableTokens) {
  const Batch batch = mlm_rows(0, 4);
  const auto metrics = make_masked_lm_metrics();
  Outputs outputs{.logits = at::zeros({batch.targets, 30}), .loss = 1, .targets = batch.targets};
  std::vector<int64_t> labels;
  for (const int64_t label : batch.labels) {
    if (label != kIgnoredLabel) labels.push_back(label);
  }
  for (size_t i = 0; i < labels.size(); ++i) {
    outputs.logits[static_cast<int64_t>(i)][i < 2 ? labels[i] : (labels[i] + 1) % 30] = 1.0;
  }
  metrics->add(batch, outputs);
  EXPECT_EQ(metrics->compute()[0].first, "accuracy");
  EXPECT_DOUBLE_EQ(metrics->compute()[0].second, 2.0 / static_cast<double>(batch.targets));
}

}  // namespace
}  // namespace finetune
