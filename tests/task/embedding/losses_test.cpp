// SPDX-License-Identifier: MIT
#include "task/embedding/losses.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "support/paths.h"
#include "task/golden_numbers.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

using testing::numbers_in;

// make_loss_goldens.py
TEST(EmbeddingLosses, AreThoseOfSentenceTransformers) {
  const Json cases = read_json_file(source_dir() + "/tests/task/embedding/loss_goldens.json");
  EXPECT_GE(cases.size(), 15U);
  for (const Json& golden : cases) {
    SCOPED_TRACE(golden.at("loss_type").get<std::string>() + golden.at("loss_kwargs").dump());
    const EmbeddingLoss& loss = embedding_loss(golden.at("loss_type").get<std::string>());
    const EmbeddingLossArgs args = parse_loss_args(loss, golden.at("loss_kwargs").dump());
    const Json& vectors = golden.at("vectors");
    const auto samples = static_cast<int64_t>(vectors.size());
    const std::vector<int64_t> shape = {samples, static_cast<int64_t>(vectors[0].size()),
                                        static_cast<int64_t>(vectors[0][0].size())};
    const Tensor rows = at::tensor(numbers_in(vectors)).view(shape).requires_grad_();
    const Json& scores = golden.at("labels");
    Tensor labels = scores.is_null() ? Tensor() : at::tensor(numbers_in(scores));
    if (loss.label == EmbeddingLoss::Label::kGuide) {
      labels = labels.view({samples, shape[1], -1});
    }
    const auto dims = golden.at("matryoshka_dims").get<std::vector<int64_t>>();
    const Tensor all = matryoshka(loss, dims, rows, labels, 0, samples, args);
    ASSERT_EQ(all.sizes(), at::IntArrayRef({samples}));
    all.mean().backward();
    // Sums in float32 in another order.
    EXPECT_NEAR(all.mean().item<double>(), golden.at("loss").get<double>(), 2e-6);
    const Tensor expected = at::tensor(numbers_in(golden.at("gradient"))).view(shape);
    EXPECT_TRUE(rows.grad().allclose(expected, 1e-5, 2e-6))
        << (rows.grad() - expected).abs().max().item<double>();
    if (!loss.by_sample) continue;
    const Tensor last = matryoshka(loss, dims, rows, labels, samples - 2, 2, args);
    EXPECT_TRUE(last.allclose(all.narrow(0, samples - 2, 2), 1e-6, 1e-6));
  }
}

TEST(EmbeddingLosses, RefuseArgumentsOfOthers) {
  const auto refusal = [](const char* loss, const char* text) {
    try {
      (void)parse_loss_args(embedding_loss(loss), text);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal("CoSENTLoss", R"({"scale": 10})"), "");
  EXPECT_NE(refusal("CoSENTLoss", R"({"margin": 1})"), "");
  EXPECT_NE(refusal("CoSENTLoss", R"({"scale": 0})"), "");
  EXPECT_NE(refusal("CoSENTLoss", R"({"scale": "x"})"), "");
  EXPECT_NE(refusal("GISTEmbedLoss", "").find("guide"), std::string::npos);
  const char* ranking = "MultipleNegativesRankingLoss";
  EXPECT_EQ(refusal(ranking, R"({"directions": ["query_to_doc", "doc_to_doc"]})"), "");
  EXPECT_NE(refusal(ranking, R"({"directions": ["doc_to_doc"]})"), "");
  EXPECT_NE(refusal(ranking, R"({"directions": ["query_to_doc", "to_doc"]})"), "");
  EXPECT_NE(refusal(ranking, R"({"directions": ["query_to_doc", "doc_to_doc"],
                                 "partition_mode": "per_direction"})"),
            "");
  EXPECT_NE(refusal("GISTEmbedLoss", R"({"guide": "a", "contrast_anchors": 1})"), "");
  EXPECT_EQ(refusal("GISTEmbedLoss", R"({"guide": "a", "margin": 0})"), "");
  EXPECT_NE(refusal("TripletLoss", R"({"distance_metric": "hamming"})"), "");
  EXPECT_EQ(embedding_loss("CachedMultipleNegativesRankingLoss").name,
            "MultipleNegativesRankingLoss");
}

}  // namespace
}  // namespace finetune
