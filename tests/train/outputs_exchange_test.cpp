// SPDX-License-Identifier: MIT
#include "train/loop/outputs_exchange.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

namespace finetune {
namespace {

Outputs some_outputs() {
  return {.logits = at::tensor({0.5F, 2.0F, -1.0F, 7.0F, 7.0F, 1.0F}).view({2, 3}),
          .next_sentence_logits = at::tensor({1.0F, -1.0F}).view({1, 2}),
          .loss = 0.1,
          .targets = 2,
          .terms = {{.mean = 0.3, .targets = 2}, {.mean = 0.7, .targets = 1}}};
}

TEST(OutputsExchange, CarriesEveryNumber) {
  const Outputs outputs =
      OutputsExchange::from_bytes(OutputsExchange::to_bytes(some_outputs(), false));
  EXPECT_TRUE(outputs.logits.equal(some_outputs().logits));
  EXPECT_TRUE(outputs.next_sentence_logits.equal(some_outputs().next_sentence_logits));
  EXPECT_EQ(outputs.loss, 0.1);
  EXPECT_EQ(outputs.targets, 2);
  ASSERT_EQ(outputs.terms.size(), 2U);
  EXPECT_EQ(outputs.terms[1].mean, 0.7);
  EXPECT_EQ(outputs.terms[1].targets, 1);
  EXPECT_FALSE(outputs.best.defined());
}

TEST(OutputsExchange, SendsOfAVocabularyTheMostProbableWordAlone) {
  const Outputs outputs =
      OutputsExchange::from_bytes(OutputsExchange::to_bytes(some_outputs(), true));
  EXPECT_FALSE(outputs.logits.defined());
  EXPECT_TRUE(outputs.best.equal(at::tensor({int64_t{1}, int64_t{0}})));
}

TEST(OutputsExchange, CarriesABatchWithoutTargets) {
  const Outputs outputs = OutputsExchange::from_bytes(OutputsExchange::to_bytes({}, true));
  EXPECT_FALSE(outputs.logits.defined());
  EXPECT_FALSE(outputs.best.defined());
  EXPECT_EQ(outputs.targets, 0);
}

}  // namespace
}  // namespace finetune
