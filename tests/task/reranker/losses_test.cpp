// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "support/paths.h"
#include "task/golden_numbers.h"
#include "task/reranker/reranker.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

using testing::numbers_in;

// make_loss_goldens.py
TEST(RerankerLosses, AreThoseOfSentenceTransformers) {
  const Json cases = read_json_file(source_dir() + "/tests/task/reranker/loss_goldens.json");
  EXPECT_GE(cases.size(), 12U);
  for (const Json& golden : cases) {
    SCOPED_TRACE(golden.at("loss_type").get<std::string>() + golden.at("loss_kwargs").dump());
    const RerankerLoss* loss = find_reranker_loss(golden.at("loss_type").get<std::string>());
    ASSERT_NE(loss, nullptr);
    const RerankerLossArgs args = parse_reranker_args(*loss, golden.at("loss_kwargs").dump());
    const auto documents = static_cast<int64_t>(golden.at("logits")[0].size());
    const std::vector<float> labels = numbers_in(golden.at("labels"));
    const auto matrix = [&](const Json& json) {
      return at::tensor(numbers_in(json)).view({-1, documents});
    };
    const Tensor logits = matrix(golden.at("logits")).requires_grad_();
    const Tensor mean = loss->sum(logits, at::tensor(labels).view_as(logits), args) /
                        static_cast<double>(loss->targets(labels, documents));
    mean.backward();
    // Sums in float32 in another order.
    EXPECT_NEAR(mean.item<double>(), golden.at("loss").get<double>(), 2e-6);
    const Tensor expected = matrix(golden.at("gradient"));
    EXPECT_TRUE(logits.grad().allclose(expected, 1e-5, 1e-6))
        << (logits.grad() - expected).abs().max().item<double>();
  }
}

TEST(RerankerLosses, RefuseArgumentsOfOthers) {
  const auto is_refused = [](const char* loss, const char* text) {
    try {
      (void)parse_reranker_args(*find_reranker_loss(loss), text);
    } catch (const Error& error) {
      return error.kind() == ErrorKind::kConfig;
    }
    return false;
  };
  EXPECT_FALSE(is_refused("RankNetLoss", R"({"sigma": 2})"));
  EXPECT_TRUE(is_refused("RankNetLoss", R"({"pos_weight": 2})"));
  EXPECT_TRUE(is_refused("LambdaLoss", R"({"weighting_scheme": "Best"})"));
  EXPECT_TRUE(is_refused("BinaryCrossEntropyLoss", R"({"pos_weight": -1})"));
  EXPECT_EQ(find_reranker_loss("CoSENTLoss"), nullptr);
}

}  // namespace
}  // namespace finetune
