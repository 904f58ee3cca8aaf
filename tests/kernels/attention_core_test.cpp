// SPDX-License-Identifier: MIT
// Sequences one behind the other against each one by itself.
#include "kernels/attention_core.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "kernels/dropout_mask.h"
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
    for (const int64_t hole : {2, 5, 40}) made.mask[0][0][0][hole] = false;  // 5: all of the second
  }
  return made;
}

Attention inputs_of(const Case& made, double p, int64_t first_place = 9) {
  Attention inputs{.query = made.query.clone(),
                   .key = made.key.clone(),
                   .value = made.value.clone(),
                   .heads = kHeads,
                   .mask = made.mask,
                   .dropout = {}};
  const DropoutStream stream{.seed = 3, .update = 2, .first_place = first_place};
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

// Output and the three gradients.
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

}  // namespace
}  // namespace finetune::kernels
