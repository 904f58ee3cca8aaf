// SPDX-License-Identifier: MIT
#include "export/onnx/recorded_graph.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "finetune/base/error.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;

const at::TensorOptions kMeta = at::TensorOptions(at::kFloat).device(at::kMeta);

class RecordedGraphTest : public ::testing::Test {
 protected:
  // Of a pass over one input [B, T, 8].
  RecordedGraph record(const std::function<Tensor(const Tensor& x)>& function,
                       int64_t most_tokens = 64) const {
    RecordedPass pass;
    pass.parameters = {{.name = "weight", .tensor = weight_}};
    pass.inputs = [](int64_t batch, int64_t tokens) {
      return std::vector<Tensor>{at::empty({batch, tokens, 8}, kMeta)};
    };
    pass.run = [&](const std::vector<Tensor>& inputs) {
      return std::vector<Tensor>{function(inputs[0])};
    };
    pass.most_tokens = most_tokens;
    return record_graph(pass);
  }
  [[nodiscard]] std::string refusal(const std::function<Tensor(const Tensor& x)>& function) const {
    try {
      (void)record(function);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }

  Tensor weight_ = at::empty({8, 8}, kMeta);
};

const DynamicSize kBatch = {.batch = 1}, kTokens = {.tokens = 1};

TEST_F(RecordedGraphTest, HasTheOutermostOperatorsWithSizesAsFunctionsOfTheInputs) {
  const RecordedGraph graph = record([&](const Tensor& x) {
    return x.matmul(weight_)
        .unflatten(-1, {2, 4})
        .transpose(1, 2)
        .flatten(0, 1)
        .narrow(1, x.size(1) - 2, 2);
  });
  std::vector<std::string> names;
  for (const RecordedCall& call : graph.calls) names.push_back(call.name);
  EXPECT_THAT(names,
              ::testing::ElementsAre("aten::matmul", "aten::unflatten.int", "aten::transpose.int",
                                     "aten::flatten.using_ints", "aten::narrow"));
  EXPECT_EQ(graph.values[graph.calls[0].arguments[1].values[0]].parameter, "weight");
  const DynamicShape heads = {kBatch, {.constant = 2}, kTokens, {.constant = 4}};
  EXPECT_EQ(graph.values[graph.calls[2].results[0]].shape, heads);
  EXPECT_EQ(graph.values[graph.calls[3].results[0]].shape[0], DynamicSize{.batch = 2});
  const DynamicSize first = {.constant = -2, .tokens = 1};
  EXPECT_EQ(graph.calls[4].arguments[2].integers[0], first);
}

TEST_F(RecordedGraphTest, KnowsProductsOfTheSizes) {
  const RecordedGraph graph = record([](const Tensor& x) {
    return at::arange(x.size(1) * x.size(1), kMeta.dtype(at::kLong)) + x.size(0) * x.size(1);
  });
  EXPECT_EQ(graph.calls[0].arguments[0].integers[0], DynamicSize{.squares = 1});
  EXPECT_EQ(graph.calls[1].arguments[1].integers[0], DynamicSize{.cells = 1});
}

TEST_F(RecordedGraphTest, HasConstantsOfTheProcessor) {
  const RecordedGraph graph = record([](const Tensor& x) {
    return x * at::tensor({1.0F, 2.0F}).repeat(4).to(at::kMeta);
  });
  size_t constants = 0;
  for (const RecordedValue& value : graph.values) constants += value.constant.defined() ? 1 : 0;
  EXPECT_EQ(constants, 1);
}

TEST_F(RecordedGraphTest, RefusesWhatDependsOnTheLengthOtherwise) {
  EXPECT_THAT(refusal([](const Tensor& x) { return x.size(1) > 10 ? x + 1 : x; }),
              HasSubstr("depends on the length"));
  EXPECT_THAT(refusal([](const Tensor& x) { return x.size(1) > 10 ? x + 1 : x * 2; }),
              HasSubstr("the order of its operators"));
  EXPECT_THAT(refusal([](const Tensor& x) { return x * (x.size(1) > 10 ? 2.0 : 3.0); }),
              HasSubstr("an argument of aten::mul"));
  EXPECT_THAT(refusal([](const Tensor& x) { return x.narrow(1, 0, x.size(1) / 2); }),
              HasSubstr("depends on the length"));
  EXPECT_THAT(refusal([](const Tensor& x) {
                return x + at::tensor(x.size(1) > 10 ? 1.0F : 2.0F).to(at::kMeta);
              }),
              HasSubstr("a table depends on the length"));
}

TEST_F(RecordedGraphTest, RefusesAViewThatIsChangedInPlace) {
  EXPECT_THAT(refusal([](const Tensor& x) {
                Tensor y = x + 1;
                y.select(1, 0).zero_();
                return y;
              }),
              HasSubstr("changes a view in place"));
}

TEST_F(RecordedGraphTest, NeedsFiveTokens) {
  EXPECT_THROW((void)record([](const Tensor& x) { return x + 1; }, 4), Error);
  EXPECT_EQ(record([](const Tensor& x) { return x + 1; }, 5).calls.size(), 1);
}

}  // namespace
}  // namespace finetune
