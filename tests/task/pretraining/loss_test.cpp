// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "finetune/base/error.h"
#include "finetune/task/metrics.h"
#include "finetune/task/task.h"
#include "support/golden.h"
#include "task/masked_lm/masked_lm.h"
#include "task/pretraining/pretraining.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;

const c10::Device kCpu(c10::kCPU);

ModelConfig tiny(const std::string& type) {
  ModelConfig config = default_model_config(type);
  config.vocab_size = 30;
  config.hidden_size = 16;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.intermediate_size = 32;
  config.max_position_embeddings = 12;
  config.type_vocab_size = 2;
  config.initializer_range = 0.2;
  config.pad_token_id = 1;
  return config;
}

// One row per sample: the second has no masked word, the third no next-sentence label.
Batch rows(int64_t first, int64_t count) {
  const std::vector<std::vector<int64_t>> ids = {
      {0, 4, 5, 2, 6, 2}, {0, 7, 2, 8, 2, 1}, {0, 8, 9, 2, 11, 2}, {0, 13, 2, 14, 15, 2}};
  const std::vector<std::vector<int64_t>> labels = {{-100, 9, -100, -100, 3, -100},
                                                    {-100, -100, -100, -100, -100, -100},
                                                    {-100, 8, 7, -100, 5, -100},
                                                    {-100, -100, -100, 4, -100, -100}};
  const std::vector<int64_t> next = {1, 0, kIgnoredLabel, 1};
  Batch batch;
  batch.rows = count;
  batch.length = 6;
  batch.first_position = first;
  for (int64_t r = first; r < first + count; ++r) {
    const auto row = static_cast<size_t>(r);
    batch.samples.push_back(r);
    batch.classes.push_back(next[row]);
    batch.targets += next[row] == kIgnoredLabel ? 0 : 1;
    for (size_t t = 0; t < 6; ++t) {
      const bool there = ids[row][t] != 1;
      batch.input_ids.push_back(ids[row][t]);
      batch.attention_mask.push_back(there ? 1 : 0);
      batch.token_type_ids.push_back(t > 3 && there ? 1 : 0);
      batch.labels.push_back(labels[row][t]);
      batch.tokens += there ? 1 : 0;
      batch.targets += labels[row][t] != kIgnoredLabel ? 1 : 0;
    }
  }
  return batch;
}

struct Result {
  double loss = 0.0;
  std::vector<Tensor> gradients = {};
};

// Runs an update of six masked words and three next-sentence labels.
Result update(const std::vector<Batch>& batches, const std::string& type, bool fused) {
  const auto model = make_model(Head::kPretraining, tiny(type), 5, kCpu, {.fused = fused});
  const auto task = make_pretraining_task(*model, kCpu, {});
  const std::vector<double> scales = {1.0 / 6, 1.0 / 3};
  Result result;
  for (const Batch& batch : batches) {
    model->store().gradients().begin_micro_batch(
        {.seed = 1, .update = 2, .first_position = batch.first_position});
    const std::vector<Tensor> sums = task->loss_sums(
        batch, {.dropout = {.seed = 1, .update = 2, .first_position = batch.first_position},
                .scales = scales});
    Tensor share;
    for (size_t term = 0; term < 2; ++term) {
      if (!sums[term].defined()) continue;
      const Tensor part = sums[term] * scales[term];
      share = share.defined() ? share + part : part;
    }
    share.backward();
    result.loss += share.item<double>();
  }
  for (const Parameter& parameter : model->store().parameters()) {
    result.gradients.push_back(fused ? parameter.gradient : parameter.weight.grad());
  }
  return result;
}

void expect_equal(const Result& a, const Result& b) {
  EXPECT_NEAR(a.loss, b.loss, 1e-5);
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    ASSERT_EQ(a.gradients[i].defined(), b.gradients[i].defined()) << i;
    if (a.gradients[i].defined()) {
      EXPECT_TRUE(at::allclose(a.gradients[i], b.gradients[i], 1e-3, 1e-6)) << i;
    }
  }
}

TEST(Pretraining, CountsTheTargetsOfEachTerm) {
  const auto model = make_model(Head::kPretraining, tiny("bert"), 5, kCpu);
  const auto task = make_pretraining_task(*model, kCpu, {});
  EXPECT_THAT(task->count_targets(rows(0, 4)), ElementsAre(6, 3));
  EXPECT_THAT(task->count_targets(rows(1, 1)), ElementsAre(0, 1));
  EXPECT_THAT(task->count_targets(rows(2, 1)), ElementsAre(3, 0));
}

TEST(Pretraining, MicroBatchesWithUnequalTargetsEqualOneLargeBatch) {
  for (const std::string type : {"bert", "big_bird"}) {
    const Result whole = update({rows(0, 4)}, type, true);
    expect_equal(whole, update({rows(0, 1), rows(1, 1), rows(2, 1), rows(3, 1)}, type, true));
  }
}

TEST(Pretraining, ComputesFusedWhatTheReadableModelComputes) {
  for (const std::string type : {"bert", "big_bird"}) {
    const std::vector<Batch> batches = {rows(0, 2), rows(2, 2)};
    expect_equal(update(batches, type, true), update(batches, type, false));
  }
}

TEST(Pretraining, SumsTheMeansOfBothTermsInEvaluation) {
  const auto model = make_model(Head::kPretraining, tiny("bert"), 5, kCpu);
  const auto task = make_pretraining_task(*model, kCpu, {});
  const auto metrics = make_pretraining_metrics();
  const Outputs all = task->evaluate(rows(0, 4));
  ASSERT_EQ(all.terms.size(), 2U);
  EXPECT_NEAR(all.loss, all.terms[0].mean + all.terms[1].mean, 1e-9);
  EXPECT_EQ(all.terms[0].targets, 6);
  EXPECT_EQ(all.terms[1].targets, 3);
  for (const auto& [first, count] : {std::pair{0, 1}, {1, 1}, {2, 2}}) {
    const Batch batch = rows(first, count);
    metrics->add(batch, task->evaluate(batch));
  }
  std::map<std::string, double> values;
  for (const auto& [name, value] : metrics->compute()) values[name] = value;
  EXPECT_NEAR(values["masked_lm_loss"], all.terms[0].mean, 1e-5);
  EXPECT_NEAR(values["next_sentence_loss"], all.terms[1].mean, 1e-5);
  for (const auto& name : task_keys("pretraining").metric_names) {
    EXPECT_TRUE(values.contains(std::string(name)) || name == "accuracy") << name;
  }
}

TEST(Pretraining, RefusesFamiliesWithoutTheHead) {
  EXPECT_FALSE(has_next_sentence_head(tiny("roberta")));
  try {
    static_cast<void>(make_model(Head::kPretraining, tiny("xlm-roberta"), 1, kCpu));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_GOLDEN(error.what());
  }
}

}  // namespace
}  // namespace finetune
