// SPDX-License-Identifier: MIT
// Compares attention over concatenated sequences with attention over each sequence alone.
#include "kernels/interface/attention_core.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/interface/dropout_mask.h"
#include "kernels/plain/operations.h"

namespace finetune::kernels {
namespace {

constexpr int64_t kHeads = 3;
const std::vector<int64_t> kLengths = {5, 1, 70, 13};

struct Case {
  Tensor query, key, value, gradient, mask;
};

Case make_case(at::ScalarType type, bool has_holes) {
  at::manual_seed(4);
  const auto draw = [&] { return at::randn({1, 89, 24}).to(type); };
  Case made{draw(), draw(), draw(), draw(), {}};
  if (has_holes) {
    made.mask = at::ones({1, 1, 1, 89}, at::kBool);
    // 5: the whole second sequence
    for (const int64_t hole : {2, 5, 40}) made.mask[0][0][0][hole] = false;
  }
  return made;
}

Attention inputs_of(const Case& made, double p, int64_t first_position = 9) {
  Attention inputs{.query = made.query.clone(),
                   .key = made.key.clone(),
                   .value = made.value.clone(),
                   .heads = kHeads,
                   .mask = made.mask,
                   .dropout = {}};
  const DropoutStream stream{.seed = 3, .update = 2, .first_position = first_position};
  inputs.dropout =
      make_dropout_numbers(p, std::optional(stream), 1, DropoutSite::kAttentionProbabilities);
  return inputs;
}

Case sequence(const Case& made, int64_t begin, int64_t tokens) {
  const auto part = [&](const Tensor& x) { return x.narrow(1, begin, tokens).contiguous(); };
  Case one{part(made.query), part(made.key), part(made.value), part(made.gradient), {}};
  if (made.mask.defined()) one.mask = made.mask.narrow(3, begin, tokens).contiguous();
  return one;
}

// The output and the three gradients.
using Result = std::array<Tensor, 4>;

template <typename Forward, typename Backward>
Result run(const Case& made, const Attention& inputs, const Forward& forward,
           const Backward& backward) {
  const Tensor output = forward(inputs);
  backward(inputs, made.gradient);
  return {output, inputs.query, inputs.key, inputs.value};
}

void expect_sequences_are_apart(at::ScalarType type, double tolerance) {
  const auto layout = make_token_layout(kLengths, 70, c10::Device(c10::kCPU));
  for (const bool has_holes : {false, true}) {
    const Case made = make_case(type, has_holes);
    Attention together = inputs_of(made, 0.2);
    together.layout = layout.get();
    const Result result = run(made, together, attention, attention_backward);
    Attention again = inputs_of(made, 0.2);
    again.layout = layout.get();
    const Result reference = run(made, again, plain::attention, plain::attention_backward);
    std::array<std::vector<Tensor>, 4> parts;
    int64_t begin = 0;
    for (size_t i = 0; i < kLengths.size(); ++i) {
      const Case one = sequence(made, begin, kLengths[i]);
      const Result alone = run(one, inputs_of(one, 0.2, 9 + static_cast<int64_t>(i)),
                               plain::attention, plain::attention_backward);
      for (size_t k = 0; k < parts.size(); ++k) parts[k].push_back(alone[k]);
      begin += kLengths[i];
    }
    for (size_t k = 0; k < parts.size(); ++k) {
      const Tensor expected = at::cat(parts[k], 1);
      EXPECT_TRUE(at::allclose(result[k], expected, tolerance, tolerance)) << k << has_holes;
      EXPECT_TRUE(at::allclose(reference[k], expected, tolerance, tolerance)) << k << has_holes;
    }
  }
}

TEST(AttentionOfALayout, KeepsSequencesApartInTheKernel) {
  expect_sequences_are_apart(at::kFloat, 2e-5);
}

TEST(AttentionOfALayout, KeepsSequencesApartInTensorOperations) {
  expect_sequences_are_apart(at::kDouble, 1e-12);
}

// Combinations of rules that attention must support.
struct RuleCase {
  int64_t kv_heads;
  AttentionRule rule;
  double dropout;
  bool has_sinks = false;
};

std::vector<RuleCase> rule_cases() {
  return {{4, {.causal = true}, 0.0},
          {2, {.causal = true}, 0.2},
          {1, {.causal = true, .window = 5}, 0.0},
          {2, {.causal = true, .window = 80, .scale = 0.3}, 0.2},
          {2, {.causal = true, .softcap = 1.5}, 0.0},
          {1, {.causal = true, .window = 3, .scale = 0.7, .softcap = 0.8}, 0.2},
          {4, {.window = 1}, 0.0},
          {4, {.window = 4}, 0.2},
          {2, {.window = 33}, 0.2},
          {1, {.window = 200, .scale = 0.4}, 0.0},
          {2, {.causal = true, .window = 7}, 0.2, true},
          {1, {.causal = true}, 0.0, true},
          {4, {.window = 5, .scale = 0.7, .softcap = 0.8}, 0.0, true}};
}

// Sequences longer than a tile, some with masked tokens.
Attention rule_inputs(const RuleCase& c, at::ScalarType type, const TokenLayout& layout,
                      bool has_holes, int64_t size = 6) {
  at::manual_seed(4);
  const int64_t tokens = layout.tokens();
  const auto draw = [&](int64_t heads) { return at::randn({1, tokens, heads * size}).to(type); };
  Attention inputs{.query = draw(4),
                   .key = draw(c.kv_heads),
                   .value = draw(c.kv_heads),
                   .heads = 4,
                   .kv_heads = c.kv_heads,
                   .rule = c.rule,
                   .mask = {},
                   .dropout = {},
                   .layout = &layout};
  if (has_holes) {
    inputs.mask = at::ones({1, 1, 1, tokens}, at::kBool);
    for (const int64_t hole : {0, 1, 40, 89, 91, 130}) inputs.mask[0][0][0][hole] = false;
  }
  if (c.has_sinks) {
    inputs.sinks = at::tensor(at::ArrayRef<float>{0.5F, -2.0F, 30.0F, -40.0F});
    inputs.of_sinks = at::full({layout.rows(), 4}, -1e9F);
    if (type == at::kFloat) inputs.of_sinks.zero_();
  }
  const DropoutStream stream{.seed = 3, .update = 2, .first_position = 9};
  inputs.dropout = make_dropout_numbers(c.dropout, std::optional(stream), 1,
                                        DropoutSite::kAttentionProbabilities);
  return inputs;
}

// float32 with other orders of summation, over up to 90 keys.
TEST(AttentionWithARule, HasTheValuesAndGradientsOfTensorOperations) {
  const auto layout = make_token_layout({90, 1, 30, 13}, 90, c10::Device(c10::kCPU));
  for (const RuleCase& c : rule_cases()) {
    for (const int64_t size : {6, 16, 40}) {  // heads of whole vectors are read where they are
      const bool has_holes = c.kv_heads == 2;
      const Attention fast = rule_inputs(c, at::kFloat, *layout, has_holes, size);
      const Attention slow = rule_inputs(c, at::kDouble, *layout, has_holes, size);
      const Tensor gradient = at::randn_like(fast.query);
      const Tensor output = attention(fast);
      const Tensor expected = plain::attention(slow);
      attention_backward(fast, gradient);
      plain::attention_backward(slow, gradient.to(at::kDouble));
      const auto near = [](const Tensor& a, const Tensor& b) {
        return at::allclose(a.to(at::kDouble), b, 3e-5, 3e-5);
      };
      EXPECT_TRUE(near(output, expected)) << c.kv_heads << c.rule.window;
      EXPECT_TRUE(near(fast.query, slow.query)) << c.kv_heads << c.rule.window;
      EXPECT_TRUE(near(fast.key, slow.key)) << c.kv_heads << c.rule.window;
      EXPECT_TRUE(near(fast.value, slow.value)) << c.kv_heads << c.rule.window;
      if (c.has_sinks) {
        EXPECT_TRUE(near(fast.of_sinks, slow.of_sinks.to(at::kDouble))) << c.rule.window;
      }
    }
  }
}

// Sorted indices of some tokens of a layout, none of its third sequence, and their layout.
struct SomeTokens {
  Tensor index;
  TokenLayout layout;
};

SomeTokens some_tokens(const TokenLayout& all) {
  std::vector<int64_t> index;
  SomeTokens some;
  some.layout.offsets = {0};
  for (int64_t row = 0; row < all.rows(); ++row) {
    const auto first = all.offsets[static_cast<size_t>(row)];
    for (int64_t t = 0; t < all.length(row); ++t) {
      if (row != 2 && (t * 7919) % 5 < 2) index.push_back(first + t);
    }
    some.layout.offsets.push_back(std::ssize(index));
  }
  some.index = at::tensor(index);
  some.layout.positions = all.positions.index_select(0, some.index);
  return some;
}

// Queries of some tokens have the values that they have among all, and so have the gradients,
// where those of the other tokens' contexts are zero. The same sequences with and without a layout,
// and one so long that the keys of a tile's queries are more than the window has room for.
TEST(AttentionOfFewerQueries, HasTheValuesAndGradientsOfTheseTokens) {
  std::vector<RuleCase> cases = rule_cases();
  cases.push_back({4, {}, 0.2});
  cases.push_back({2, {}, 0.0});
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{90, 1, 30, 13}, {50, 50, 50}, {2100}}) {
    const auto layout = make_token_layout(lengths, lengths[0], c10::Device(c10::kCPU));
    const bool is_dense = lengths.size() == 3;
    const SomeTokens some = some_tokens(*layout);
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      for (const RuleCase& c : cases) {
        const bool is_long = lengths.size() == 1;
        if (is_long && (type != at::kFloat || c.rule.window == 0 || c.dropout > 0)) continue;
        const int64_t size = c.kv_heads == 4 ? 16 : 6;
        Attention fewer = rule_inputs(c, type, *layout, c.kv_heads == 2, size);
        Attention all = rule_inputs(c, at::kDouble, *layout, c.kv_heads == 2, size);
        fewer.query = fewer.query.index_select(1, some.index);
        fewer.queries = &some.layout;
        if (c.has_sinks) fewer.of_sinks.zero_();
        if (is_dense) {
          fewer.layout = nullptr;
          for (Tensor* x : {&fewer.key, &fewer.value}) *x = x->view({3, 50, -1});
          if (fewer.mask.defined()) fewer.mask = fewer.mask.view({3, 1, 1, 50});
        }
        const Tensor gradient = at::randn_like(fewer.query);
        const Tensor of_all =
            at::zeros_like(all.query).index_copy(1, some.index, gradient.to(at::kDouble));
        for (Tensor* x : {&all.query, &all.key, &all.value}) *x = x->to(type).to(at::kDouble);
        const Tensor output = attention(fewer);
        const Tensor expected = plain::attention(all).index_select(1, some.index);
        attention_backward(fewer, gradient);
        plain::attention_backward(all, of_all);
        const double tolerance = type == at::kFloat ? 3e-5 : 3e-2;  // half of bf16's last digit
        const auto near = [&](const Tensor& a, const Tensor& b) {
          return at::allclose(a.to(at::kDouble).view_as(b), b, tolerance, tolerance);
        };
        EXPECT_TRUE(near(output, expected)) << c.kv_heads << c.rule.window;
        EXPECT_TRUE(near(fewer.query, all.query.index_select(1, some.index))) << c.rule.window;
        EXPECT_TRUE(near(fewer.key, all.key)) << c.kv_heads << c.rule.window;
        EXPECT_TRUE(near(fewer.value, all.value)) << c.kv_heads << c.rule.window;
        if (c.has_sinks) {
          const Tensor of_sinks = all.of_sinks.to(at::kDouble);
          EXPECT_TRUE(near(fewer.of_sinks, of_sinks)) << c.rule.window;
        }
      }
    }
  }
}

// The gradients of the reference against autograd over its equation, for one sequence.
TEST(AttentionWithARule, HasTheGradientsOfAutogradInTensorOperations) {
  const auto layout = make_token_layout({9}, 9, c10::Device(c10::kCPU));
  for (const RuleCase& c : rule_cases()) {
    Attention inputs = rule_inputs(c, at::kDouble, *layout, false);
    inputs.dropout.reset();
    const Tensor gradient = at::randn_like(inputs.query);
    std::vector<Tensor> leaves;
    const auto heads_of = [&](const Tensor& x, int64_t heads) {
      leaves.push_back(x.detach().clone().set_requires_grad(true));
      return leaves.back()[0].view({9, heads, 6}).transpose(0, 1).repeat_interleave(4 / heads, 0);
    };
    const Tensor q = heads_of(inputs.query, 4);
    const Tensor k = heads_of(inputs.key, c.kv_heads);
    const Tensor v = heads_of(inputs.value, c.kv_heads);
    Tensor scores =
        q.matmul(k.transpose(1, 2)) * (c.rule.scale == 0.0 ? 1.0 / std::sqrt(6.0) : c.rule.scale);
    if (c.rule.softcap != 0.0) scores = (scores / c.rule.softcap).tanh() * c.rule.softcap;
    Tensor hidden = at::ones({9, 9}, at::kBool).triu(c.rule.causal ? 1 : c.rule.window);
    if (c.rule.window > 0) {
      hidden = hidden.logical_or(at::ones({9, 9}, at::kBool).tril(-c.rule.window));
    }
    Tensor sinks = at::full({4}, -std::numeric_limits<double>::infinity(), at::kDouble);
    if (c.has_sinks) sinks = inputs.sinks.to(at::kDouble);
    sinks.set_requires_grad(true);
    scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
    const Tensor out = at::cat({scores, sinks.view({4, 1, 1}).expand({4, 9, 1})}, -1)
                           .softmax(-1)
                           .narrow(-1, 0, 9)
                           .matmul(v)
                           .transpose(0, 1)
                           .reshape({1, 9, 24});
    out.backward(gradient);
    EXPECT_TRUE(at::allclose(plain::attention(inputs), out.detach(), 1e-10, 1e-10));
    plain::attention_backward(inputs, gradient);
    EXPECT_TRUE(at::allclose(inputs.query, leaves[0].grad(), 1e-9, 1e-9));
    EXPECT_TRUE(at::allclose(inputs.key, leaves[1].grad(), 1e-9, 1e-9));
    EXPECT_TRUE(at::allclose(inputs.value, leaves[2].grad(), 1e-9, 1e-9));
    if (c.has_sinks) {  // stored in float32
      EXPECT_TRUE(at::allclose(inputs.of_sinks[0], sinks.grad().to(at::kFloat), 1e-6, 1e-6));
    }
  }
}

}  // namespace
}  // namespace finetune::kernels
