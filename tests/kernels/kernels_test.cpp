// SPDX-License-Identifier: MIT
// Compares every operation of every table with plain's.
#include "kernels/interface/kernels.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "cuda_on_cpu/kernels.h"
#include "kernels/cpu/operations.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/runner.h"
#include "kernels/interface/dropout_mask.h"
#include "kernels/plain/operations.h"
#include "kernels/update_numbers.h"

namespace finetune::kernels {
namespace {

// A table with a missing operation does not compile.
static_assert(!std::is_default_constructible_v<Kernels>);

constexpr float kInf = std::numeric_limits<float>::infinity();

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         (a.numel() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

void expect_close(const Tensor& actual, const Tensor& expected, double tolerance) {
  const Tensor wanted = expected.to(at::kDouble);
  const Tensor error = (actual.to(at::kDouble) - wanted).abs().max();
  EXPECT_LE(error.item<double>(), tolerance * wanted.abs().max().item<double>());
}

std::optional<DropoutNumbers> dropout_of(double p) {
  const DropoutStream stream{.seed = 3, .update = 2, .first_position = 9};
  return make_dropout_numbers(p, std::optional(stream), 1, DropoutSite::kAttentionOutput);
}

// A table, the type that it computes in, and the allowed error against plain in float64.
struct TableCase {
  const Kernels& kernels;
  at::ScalarType type;
  double tolerance;
};

class EveryTable : public ::testing::TestWithParam<TableCase> {
 protected:
  void SetUp() override {
    at::manual_seed(4);
    cuda::set_runner(&cuda_on_cpu::cpu_runner());
  }

  // Runs compute(kernels, in) with the table and with plain in float64; `in` converts to the type.
  template <typename Compute>
  void expect_like_plain(const Compute& compute) const {
    const TableCase& wanted = GetParam();
    const std::vector<Tensor> actual =
        compute(wanted.kernels, [&](const Tensor& x) { return x.to(wanted.type, false, true); });
    // From the same values: rounded to the type first.
    const std::vector<Tensor> expected = compute(plain::kKernels, [&](const Tensor& x) {
      return x.to(wanted.type).to(at::kDouble, false, true);
    });
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      SCOPED_TRACE(i);
      expect_close(actual[i], expected[i], wanted.tolerance);
    }
  }
  [[nodiscard]] const Kernels& kernels() const { return GetParam().kernels; }
  [[nodiscard]] static Tensor weight(const Tensor& x, const Tensor& like) {
    return x.to(like.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  }
};

// The sum where a table gives partial sums.
Tensor whole(const Tensor& gradient) { return gradient.dim() == 2 ? gradient.sum(0) : gradient; }

TEST_P(EveryTable, AddsAndNormalises) {
  const Tensor product = at::randn({3, 5, 70});
  const Tensor residual = at::randn({3, 5, 70});
  const Tensor gradient = at::randn({3, 5, 70});
  const Tensor bias = at::randn({70});
  const Tensor gamma = at::randn({70});
  for (const double p : {0.0, 0.2}) {
    expect_like_plain([&](const Kernels& k, const auto& in) -> std::vector<Tensor> {
      const Tensor sums = in(product);
      const AddNorm weights = {.gamma = weight(gamma, sums),
                               .beta = weight(bias, sums),
                               .epsilon = 1e-5,
                               .dropout = dropout_of(p)};
      const Tensor y = k.add_norm(sums, weight(bias, sums), in(residual), weights);
      const Tensor again = k.norm(sums, weights);
      EXPECT_TRUE(again.equal(y));
      const Tensor dy = in(gradient);
      const AddNormGradients back = k.add_norm_backward(dy, sums, weights);
      return {y, dy, back.product, whole(back.gamma), whole(back.beta), whole(back.bias)};
    });
  }
}

TEST_P(EveryTable, Attends) {
  const auto layout = make_token_layout({5, 1, 20, 13}, 20, c10::Device(c10::kCPU));
  Tensor mask = at::ones({1, 1, 1, 39}, at::kBool);
  mask[0][0][0][7] = false;
  const Tensor rows = at::randn({4, 1, 39, 24});
  for (const TokenLayout* sequences :
       std::initializer_list<const TokenLayout*>{nullptr, layout.get()}) {
    expect_like_plain([&](const Kernels& k, const auto& in) -> std::vector<Tensor> {
      const Attention inputs{.query = in(rows[0]),
                             .key = in(rows[1]),
                             .value = in(rows[2]),
                             .heads = 3,
                             .mask = mask,
                             .dropout = dropout_of(0.2),
                             .layout = sequences};
      const Tensor context = k.attention(inputs);
      k.attention_backward(inputs, in(rows[3]));
      return {context, inputs.query, inputs.key, inputs.value};
    });
  }
}

TEST_P(EveryTable, AttendsInBlocks) {
  const BlockSparseOptions options{.block_size = 16, .random_blocks = 1, .seed = 7};
  const Tensor rows = at::randn({4, 2, 149, 24});
  expect_like_plain([&](const Kernels& k, const auto& in) -> std::vector<Tensor> {
    const BlockAttention inputs = make_block_attention(
        in(rows[0]), in(rows[1]), in(rows[2]), {},
        {.heads = 3, .dropout_probability = 0.1, .dropout = DropoutStream{.seed = 5}}, options);
    const BlockContext forward = k.block_attention(inputs);
    k.block_attention_backward(inputs, forward, in(rows[3]));
    std::vector<Tensor> results = {forward.context, inputs.query, inputs.key, inputs.value};
    // Another table makes its backward pass without them.
    if (kernels().name != cuda::kKernels.name) results.push_back(forward.log_sum_exp);
    return results;
  });
}

TEST_P(EveryTable, AddsABiasAndActivates) {
  const Tensor x = at::randn({3, 50, 70}) * 2;
  const Tensor gradient = at::randn({3, 50, 70});
  const Tensor bias = at::randn({70});
  const Activation hyperbolic = [](const Tensor& t) { return at::tanh(t); };
  for (const Activation f : {Activation{nullptr}, Activation{tanh_gelu}, hyperbolic}) {
    expect_like_plain([&](const Kernels& k, const auto& in) -> std::vector<Tensor> {
      const Tensor input = in(x);
      const Tensor output = at::empty_like(input);
      k.bias_activation(input, weight(bias, input), f, output);
      const Tensor dy = in(gradient);
      const Tensor of_bias = k.bias_activation_backward(input, weight(bias, input), f, dy);
      return {output, dy, whole(of_bias)};
    });
  }
}

TEST_P(EveryTable, NormalisesByTheRootMeanSquare) {
  for (const int64_t columns : {1, 16, 70, 200, 576, 1024, 2048, 5000}) {
    const Tensor x = at::randn({2, 25, columns});
    const Tensor gradient = at::randn({2, 25, columns});
    const Tensor factors = at::randn({columns});
    for (const bool adds_one : {false, true}) {
      expect_like_plain([&](const Kernels& k, const auto& in) -> std::vector<Tensor> {
        const Tensor input = in(x);
        const RmsNorm norm = {
            .weight = weight(factors, input), .epsilon = 1e-3, .adds_one = adds_one};
        const at::ScalarType type = input.scalar_type();
        const Tensor y = k.rms_norm(input, norm, type);
        const RmsNormGradients gradients =
            k.rms_norm_backward(in(gradient), input, norm, {}, false);
        EXPECT_TRUE(k.rms_norm(input, norm, type).equal(y));
        const Tensor branch = in(gradient);
        const SumAndNorm of_sum = k.add_rms_norm(input, branch, norm, type);
        EXPECT_TRUE(of_sum.sum.equal(input + branch));
        EXPECT_TRUE(of_sum.normed.equal(k.rms_norm(of_sum.sum, norm, type)));
        const Tensor sum = in(x);
        const RmsNormGradients added = k.rms_norm_backward(in(gradient), input, norm, sum, false);
        EXPECT_TRUE(added.input.is_same(sum));
        return {y, gradients.input, whole(gradients.weight), sum, whole(added.weight)};
      });
    }
  }
}

TEST_P(EveryTable, MultipliesWithAGate) {
  const Tensor x = at::randn({3, 50, 71}) * 4;
  const Tensor other = at::randn({3, 50, 71});
  const Tensor gradient = at::randn({3, 50, 71});
  const Activation identity = [](const Tensor& t) { return t * 1.0; };
  for (const Activation f : {Activation{silu}, Activation{gelu}, Activation{tanh_gelu}, identity}) {
    expect_like_plain([&](const Kernels& k, const auto& in) -> std::vector<Tensor> {
      const Tensor gate = in(x);
      const Tensor up = in(other);
      const Tensor y = k.gated_product(gate, up, f);
      k.gated_product_backward(gate, up, f, in(gradient));
      return {y, gate, up};
    });
  }
}

// Beyond where an exponential overflows, and what is not finite.
TEST_P(EveryTable, MultipliesWithAGateOfAnySize) {
  const Tensor gate = at::tensor({-200.0F, -100.0F, -87.5F, 0.0F, 88.0F, 100.0F, 200.0F});
  const Tensor up = at::ones({7});
  const Tensor y = kernels().gated_product(gate, up, silu);
  EXPECT_TRUE(at::allclose(y, at::silu(gate), 1e-6, 1e-30)) << y;
  const Tensor broken = at::full({3}, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(kernels().gated_product(broken, at::ones({3}), silu).isnan().all().item<bool>());
  kernels().gated_product_backward(gate, up, silu, at::ones({7}));
  EXPECT_TRUE(gate.isfinite().all().item<bool>()) << gate;
  EXPECT_TRUE(up.isfinite().all().item<bool>()) << up;
}

TEST_P(EveryTable, ComputesXielu) {
  const Tensor x = at::randn({3, 50, 71}) * 2;
  x.view(-1).slice(0, 0, 6).copy_(at::tensor({0.0F, -1e-7F, -2e-6F, -1e-4F, -30.0F, 1e-7F}));
  const Tensor gradient = at::randn({3, 50, 71});
  for (const float alpha : {-1.5F, 0.2F, 25.0F}) {
    const Tensor alpha_p = at::full({1}, alpha), alpha_n = at::full({1}, 0.5F - alpha);
    expect_like_plain([&](const Kernels& k, const auto& in) -> std::vector<Tensor> {
      const Xielu f = {.alpha_p = weight(alpha_p, in(x)), .alpha_n = weight(alpha_n, in(x))};
      const Tensor y = k.xielu(in(x), f);
      const Tensor dy = in(gradient);
      const XieluGradients gradients = k.xielu_backward(dy, in(x), f);
      return {y, dy, whole(gradients.alpha_p), whole(gradients.alpha_n)};
    });
  }
}

// exp(x) - 1 - x cancels near zero.
TEST(CpuKernels, ComputeXieluToTheBitsOfFloat32NearZero) {
  const Tensor x = -at::logspace(-7, 0.5, 400, 10.0, at::kDouble);
  const Xielu f = {.alpha_p = at::full({1}, 0.2F), .alpha_n = at::full({1}, -1.0F)};
  const Xielu wide = {.alpha_p = f.alpha_p.to(at::kDouble), .alpha_n = f.alpha_n.to(at::kDouble)};
  const Tensor narrow = x.to(at::kFloat);
  const Tensor expected = plain::xielu(narrow.to(at::kDouble), wide);
  const Tensor error = (cpu::xielu(narrow, f).to(at::kDouble) - expected).abs();
  EXPECT_LT((error / narrow.abs()).max().item<double>(), 1e-6);
}

TEST_P(EveryTable, RotatesHeads) {
  const Tensor x = at::randn({2, 9, 3 * 50});
  for (const int64_t half : {1, 16, 20, 25}) {
    const Tensor angles = at::randn({9, half});
    expect_like_plain([&](const Kernels& k, const auto& in) -> std::vector<Tensor> {
      const auto turn = [&](const Tensor& heads, bool back) {
        return k.rotate_heads(
            {heads}, {.cos = angles.cos(), .sin = angles.sin(), .head_size = 50, .back = back})[0];
      };
      const Tensor turned = turn(in(x), false);
      const Tensor kept = turned.clone();
      return {kept, turn(turned, true)};
    });
  }
}

// Checkpoints of ModernBERT that were trained by ATen's operators resume to the same bits.
TEST(CpuKernels, RotateToTheBitsOfThePlainOnes) {
  const Tensor x = at::randn({2, 9, 3 * 64});
  const Tensor angles = at::randn({9, 32});
  for (const bool back : {false, true}) {
    const HeadRotation rotation = {
        .cos = angles.cos(), .sin = angles.sin(), .head_size = 64, .back = back};
    const Tensor expected = plain::rotate_heads({x}, rotation)[0];
    EXPECT_TRUE(same_bytes(cpu::rotate_heads({x.clone()}, rotation)[0], expected));
  }
}

// Sequences of more and of fewer tokens than a chunk of states, and heads that share keys.
struct DeltaCase {
  int64_t key_size = 20;
  std::vector<int64_t> lengths = {37, 5, 16};
  std::shared_ptr<TokenLayout> layout = make_token_layout(lengths, 40, c10::Device(c10::kCPU));
  Tensor mixed = at::randn({1, 58, 2 * 2 * key_size + 4 * 24});
  Tensor a = at::randn({1, 58, 4});
  Tensor b = at::randn({1, 58, 4});
  Tensor a_log = at::randn({4});
  Tensor dt_bias = at::randn({4});

  template <typename Convert>
  [[nodiscard]] DeltaRule rule(const Convert& in) const {
    const auto wide = [&](const Tensor& x) {
      const Tensor own = in(x);
      return own.scalar_type() == at::kDouble ? own : x.to(at::kFloat);
    };
    return {.mixed = in(mixed),
            .a = in(a),
            .b = in(b),
            .a_log = wide(a_log),
            .dt_bias = wide(dt_bias),
            .key_heads = 2,
            .key_size = key_size,
            .tokens = {.tokens = 0, .layout = layout.get()}};
  }
  // Of one sequence.
  [[nodiscard]] DeltaRule part(int64_t first, int64_t count) const {
    const auto own = [&](const Tensor& x) { return x.narrow(1, first, count).contiguous(); };
    return {.mixed = own(mixed),
            .a = own(a),
            .b = own(b),
            .a_log = a_log,
            .dt_bias = dt_bias,
            .key_heads = 2,
            .key_size = key_size,
            .tokens = {.tokens = count, .layout = nullptr}};
  }
};

TEST_P(EveryTable, FollowsTheGatedDeltaRule) {
  for (const int64_t key_size : {20, 100, 200, 300}) {
    DeltaCase all = {.key_size = key_size};
    if (key_size == 100) all.a *= 20.0;  // some tokens forget all that is before them
    const Tensor gradient = at::randn({1, 58, 4 * 24});
    expect_like_plain([&](const Kernels& k, const auto& in) -> std::vector<Tensor> {
      const DeltaRule rule = all.rule(in);
      const DeltaRuleGradients of = k.delta_rule_backward(rule, in(gradient));
      return {k.delta_rule(rule, {}), of.mixed, of.a, of.b, of.a_log, of.dt_bias};
    });
  }
}

TEST_P(EveryTable, BeginsEachSequenceWithoutTheOneBefore) {
  const DeltaCase all;
  const auto same = [](const Tensor& x) { return x; };
  // ATen's exponentials of a vector and of what is left after the last one differ.
  const auto equal = [&](const Tensor& one, const Tensor& other) {
    return &kernels() == &plain::kKernels ? at::allclose(one, other, 1e-5, 1e-6)
                                          : same_bytes(one, other);
  };
  const Tensor gradient = at::randn({1, 58, 4 * 24});
  const Tensor together = kernels().delta_rule(all.rule(same), {});
  const DeltaRuleGradients of = kernels().delta_rule_backward(all.rule(same), gradient);
  int64_t first = 0;
  for (const int64_t count : all.lengths) {
    const DeltaRule alone = all.part(first, count);
    const auto own = [&](const Tensor& x) { return x.narrow(1, first, count).contiguous(); };
    EXPECT_TRUE(equal(kernels().delta_rule(alone, {}), own(together)));
    const DeltaRuleGradients of_alone = kernels().delta_rule_backward(alone, own(gradient));
    EXPECT_TRUE(equal(of_alone.mixed, own(of.mixed)));
    EXPECT_TRUE(equal(of_alone.a, own(of.a)));
    EXPECT_TRUE(equal(of_alone.b, own(of.b)));
    first += count;
  }
}

TEST_P(EveryTable, ContinuesASequenceFromItsState) {
  const DeltaCase all;
  const Tensor whole = kernels().delta_rule(all.part(0, 37), {});
  const Tensor state = at::zeros({4, 20, 24});
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 20}, {20, 16}, {36, 1}}) {
    const Tensor part = kernels().delta_rule(all.part(first, count), state);
    expect_close(part, whole.narrow(1, first, count), 1e-5);
  }
}

TEST_P(EveryTable, ConvolvesTheLastTokensOfASequence) {
  const DeltaCase all;
  const Tensor x = at::randn({1, 58, 37});
  const Tensor weight = at::randn({37, 4});
  const Tensor bias = at::randn({37});
  const Tensor gradient = at::randn({1, 58, 37});
  for (const bool has_bias : {false, true}) {
    for (const bool has_silu : {false, true}) {
      expect_like_plain([&](const Kernels& k, const auto& in) -> std::vector<Tensor> {
        const auto wide = [&](const Tensor& w) {
          return in(w).scalar_type() == at::kDouble ? w.to(at::kDouble) : w;
        };
        ShortConvolution convolution = {.weight = wide(weight),
                                        .bias = has_bias ? wide(bias) : Tensor(),
                                        .has_silu = has_silu,
                                        .tokens = {.tokens = 0, .layout = all.layout.get()}};
        const ShortConvolutionGradients of =
            k.short_convolution_backward(in(gradient), in(x), convolution);
        std::vector<Tensor> results = {k.short_convolution(in(x), convolution, {}), of.input,
                                       of.weight};
        if (has_bias) results.push_back(of.bias);
        convolution.tokens = {.tokens = 58, .layout = nullptr};
        results.push_back(k.short_convolution(in(x), convolution, in(at::ones({3, 37}))));
        return results;
      });
    }
  }
}

TEST_P(EveryTable, ConvolvesEachSequenceWithoutTheOneBefore) {
  const DeltaCase all;
  const Tensor x = at::randn({1, 58, 37});
  const Tensor gradient = at::randn({1, 58, 37});
  ShortConvolution convolution = {.weight = at::randn({37, 4}), .has_silu = true};
  convolution.tokens = {.tokens = 0, .layout = all.layout.get()};
  const Tensor together = kernels().short_convolution(x, convolution, {});
  const Tensor of = kernels().short_convolution_backward(gradient, x, convolution).input;
  int64_t first = 0;
  for (const int64_t count : all.lengths) {
    const auto own = [&](const Tensor& t) { return t.narrow(1, first, count).contiguous(); };
    convolution.tokens = {.tokens = count, .layout = nullptr};
    EXPECT_TRUE(same_bytes(kernels().short_convolution(own(x), convolution, {}), own(together)));
    EXPECT_TRUE(same_bytes(
        kernels().short_convolution_backward(own(gradient), own(x), convolution).input, own(of)));
    first += count;
  }
}

TEST_P(EveryTable, DropsTheSameElements) {
  const Tensor x = at::randn({2, 3, 9, 35});
  expect_like_plain([&](const Kernels& k, const auto& in) -> std::vector<Tensor> {
    return {k.dropout(in(x), *dropout_of(0.25), nullptr)};
  });
}

TEST_P(EveryTable, CountsTheLossOfEachRow) {
  if (GetParam().type != at::kFloat) return;
  for (const int64_t columns : {1, 2, 15, 16, 17, 1000}) {
    const Tensor logits = at::randn({6, columns}) * 20;
    const Tensor labels = at::randint(columns, {6}, at::kLong);
    for (const double smoothing : {0.0, 0.1}) {
      const SoftmaxCrossEntropyOptions options{.label_smoothing_factor = smoothing,
                                               .gradient_scale = 0.25};
      const Tensor gradient = logits.clone();
      const Tensor expected_gradient = logits.to(at::kDouble);
      const Tensor losses = kernels().softmax_cross_entropy_(gradient, labels, options);
      const Tensor expected = plain::softmax_cross_entropy_(expected_gradient, labels, options);
      const bool is_plain = &kernels() == &plain::kKernels;  // its losses are float32 sums
      const double error = is_plain ? 1e-5 : 1e-6;
      EXPECT_TRUE(at::allclose(losses, expected, error, error)) << columns << losses << expected;
      EXPECT_TRUE(at::allclose(gradient.to(at::kDouble), expected_gradient, error, error / 10))
          << columns;
    }
  }
}

TEST_P(EveryTable, AddsRowsInTheOrderOfTheirIndices) {
  const Tensor rows = at::randn({200, 10});
  const Tensor indices = at::randint(17, {200}, at::kLong);
  const Tensor expected = at::randn({20, 10}).to(at::kDouble);
  const Tensor added = expected.to(at::kFloat);
  const Tensor summed = at::zeros({20, 10});
  const Tensor expected_sums = at::zeros({20, 10}, at::kDouble);
  kernels().add_rows(added, indices, rows, 3);
  plain::add_rows(expected, indices, rows.to(at::kDouble), 3);
  kernels().sum_rows(summed, indices, rows);
  plain::sum_rows(expected_sums, indices, rows.to(at::kDouble));
  EXPECT_TRUE(at::allclose(added.to(at::kDouble), expected, 1e-5, 1e-5));
  EXPECT_TRUE(at::allclose(summed.to(at::kDouble), expected_sums, 1e-5, 1e-5));
}

// Values of many magnitudes, including NaN and Inf.
Tensor values_of_many_sizes(std::vector<int64_t> shape) {
  const Tensor values = at::randn(shape) * at::exp(at::randn(shape) * 20.0);
  const Tensor flat = values.view(-1);
  for (int64_t i = 5; i < flat.numel(); i += 17) flat[i] = 0.0;
  flat[1] = kInf;
  flat[2] = std::numeric_limits<float>::quiet_NaN();
  flat[3] = -std::numeric_limits<float>::max();
  flat[4] = 0x1.ffffffp-1F;  // rounds to the next power of two
  return values;
}

TEST_P(EveryTable, ConvertsFormatsToEqualBits) {
  const Tensor values = values_of_many_sizes({41, 122});
  const RoundingKey key{.key = 77, .first_element = 0x7FFFFFFFD};
  const auto convert = [&](const Kernels& k) -> std::vector<Tensor> {
    const Tensor rounded = at::empty_like(values, at::kBFloat16);
    k.round_stochastically(rounded, values, key);
    const Tensor added = rounded.clone();
    k.add_all_stochastically({{added, values.flip(0), key}});
    const Tensor weight = at::empty_like(rounded);
    const Tensor correction = at::empty_like(values, at::kChar);
    k.split_values(values, weight, correction);
    const Tensor back = at::empty_like(values);
    k.join_all_values({{weight, correction, back}});
    return {rounded, added, weight, correction, back};
  };
  const std::vector<Tensor> actual = convert(kernels());
  const std::vector<Tensor> expected = convert(plain::kKernels);
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_TRUE(same_bytes(actual[i], expected[i])) << i;
}

// More tensors than a device's launch takes, one of them empty.
TEST_P(EveryTable, ConvertsListsToTheBitsOfSingleTensors) {
  std::vector<RoundedSum> sums;
  std::vector<SplitTensor> split;
  std::vector<Tensor> expected_sums;
  std::vector<Tensor> expected_values;
  for (int64_t i = 0; i < 70; ++i) {
    const int64_t count = i == 9 ? 0 : 1 + 97 * i;
    const Tensor values = at::randn({count});
    const Tensor start = at::randn({count}).to(at::kBFloat16);
    const auto position = static_cast<uint64_t>(i);
    const RoundingKey key{.key = 5 + position, .first_element = 3 * position};
    sums.push_back({start.clone(), values, key});
    expected_sums.push_back(start.clone());
    plain::add_all_stochastically({{expected_sums.back(), values, key}});
    const Tensor correction = at::empty({count}, at::kChar);
    plain::split_values(values, start, correction);
    split.push_back({start, correction, at::zeros({count})});
    expected_values.push_back(at::zeros({count}));
    plain::join_all_values({{start, correction, expected_values.back()}});
  }
  kernels().add_all_stochastically(sums);
  kernels().join_all_values(split);
  for (size_t i = 0; i < sums.size(); ++i) {
    EXPECT_TRUE(same_bytes(sums[i].target, expected_sums[i])) << i;
    EXPECT_TRUE(same_bytes(split[i].values, expected_values[i])) << i;
  }
}

TEST_P(EveryTable, JoinsGatheredRowsToEqualBits) {
  for (const int64_t columns : {5, 1030}) {
    const Tensor values = values_of_many_sizes({30, columns});
    const Tensor weight = at::empty_like(values, at::kBFloat16);
    const Tensor correction = at::empty_like(values, at::kChar);
    plain::split_values(values, weight, correction);
    const Tensor indices = at::randint(30, {4, 3}, at::kLong);
    const Tensor rows = kernels().joined_rows(weight, correction, indices);
    EXPECT_EQ(rows.sizes(), (std::vector<int64_t>{4, 3, columns}));
    EXPECT_TRUE(same_bytes(rows, plain::joined_rows(weight, correction, indices)));
  }
}

TEST_P(EveryTable, SumsSquaresAndAverages) {
  const Tensor values = at::randn({40001}) + 0.5;
  const double squares = values.to(at::kDouble).square().sum().item<double>();
  EXPECT_NEAR(kernels().sum_of_squares(values), squares, 1e-5 * squares);
  const Tensor brain = values.to(at::kBFloat16);
  EXPECT_NEAR(kernels().sum_of_squares(brain), brain.to(at::kDouble).square().sum().item<double>(),
              1e-5 * squares);
  EXPECT_NEAR(kernels().mean(values), values.to(at::kDouble).mean().item<double>(), 1e-5);
}

// Of a part that begins at a block they are those of the whole.
TEST_P(EveryTable, SumsSquaresOfBlocks) {
  const Tensor values = at::randn({2 * kSquaresBlock + 77});
  const std::vector<double> sums = kernels().block_sums_of_squares(values);
  ASSERT_EQ(sums.size(), 3U);
  const double all = values.to(at::kDouble).square().sum().item<double>();
  EXPECT_NEAR(sums[0] + sums[1] + sums[2], all, 1e-5 * all);
  const Tensor part = values.narrow(0, kSquaresBlock, kSquaresBlock + 77);
  EXPECT_EQ(kernels().block_sums_of_squares(part), (std::vector<double>{sums[1], sums[2]}));
}

// States of a matrix; codes have its shape.
struct States {
  DynamicState dynamic;
  CompandedState companded;
  WideState wide;

  explicit States(const Tensor& like) {
    const auto codes = [&](at::ScalarType type) { return at::zeros(like.sizes(), type); };
    const auto scales = [&](int64_t block) { return at::zeros({(like.numel() - 1) / block + 1}); };
    dynamic = {codes(at::kByte), codes(at::kByte), scales(kDynamicBlock), scales(kDynamicBlock)};
    companded = {codes(at::kChar), scales(kCompandedGroup), codes(at::kByte),
                 scales(kCompandedGroup)};
    wide = {codes(at::kFloat), codes(at::kFloat)};
  }
};

TEST_P(EveryTable, EncodesAndDecodesStatesOfMatrices) {
  const Tensor first = at::randn({37, 41}) * at::exp(at::randn({37, 41}) * 4.0);
  const Tensor second = first.flip(0).square().contiguous();
  const auto compute = [&](const Kernels& k) -> std::vector<Tensor> {
    const States states(first);
    std::vector<Tensor> moments;
    for (int i = 0; i < 4; ++i) moments.push_back(at::empty_like(first));
    k.encode_dynamic(first, second, states.dynamic);
    k.decode_dynamic(states.dynamic, moments[0], moments[1]);
    k.encode_companded(first, second, states.companded);
    k.decode_companded(states.companded, moments[2], moments[3]);
    return moments;
  };
  const std::vector<Tensor> actual = compute(kernels());
  const std::vector<Tensor> expected = compute(plain::kKernels);
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(at::allclose(actual[i], expected[i], 1e-6, 0.0)) << i;
  }
}

TEST_P(EveryTable, UpdatesMatrices) {
  const Tensor start = at::randn({37, 41});
  const Tensor gradient = at::randn({37, 41});
  const AdamWUpdate update{.factor = 0.5, .rounding_key = 8};
  const auto compute = [&](const Kernels& k) -> std::vector<Tensor> {
    const States states(start);
    std::vector<Tensor> weights;
    for (int i = 0; i < 3; ++i) {
      const ParameterTensors parameter{.weight = start.clone(), .gradient = gradient};
      for (int t = 0; t < 3; ++t) {
        if (i == 0) k.update_dynamic(parameter, states.dynamic, update, kTheirNumbers);
        if (i == 1) k.update_wide(parameter, states.wide, update, kTheirNumbers);
        if (i == 2) k.update_companded(parameter, states.companded, update, kOurNumbers);
      }
      weights.push_back(parameter.weight);
    }
    return weights;
  };
  const std::vector<Tensor> actual = compute(kernels());
  const std::vector<Tensor> expected = compute(plain::kKernels);
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(at::allclose(actual[i], expected[i], 1e-6, 1e-6)) << i;
  }
}

TEST_P(EveryTable, ConvertsWholeBlocksAtATime) {
  EXPECT_EQ(kernels().chunk_values % 2048, 0);
  (void)kernels().has_fast_products(Precision::kBFloat16);
}

INSTANTIATE_TEST_SUITE_P(Cpu, EveryTable,
                         ::testing::Values(TableCase{cpu::kKernels, at::kFloat, 2e-5},
                                           TableCase{cpu::kKernels, at::kBFloat16, 0.03},
                                           TableCase{cpu::kKernels, at::kHalf, 0.004}));
INSTANTIATE_TEST_SUITE_P(Plain, EveryTable,
                         ::testing::Values(TableCase{plain::kKernels, at::kFloat, 2e-5},
                                           TableCase{plain::kKernels, at::kBFloat16, 0.03},
                                           TableCase{plain::kKernels, at::kHalf, 0.004}));

// The sources that NVRTC compiles, run on the CPU.
INSTANTIATE_TEST_SUITE_P(Cuda, EveryTable,
                         ::testing::Values(TableCase{cuda::kKernels, at::kFloat, 2e-5},
                                           TableCase{cuda::kKernels, at::kBFloat16, 0.03},
                                           TableCase{cuda::kKernels, at::kHalf, 0.004}));

TEST(KernelsFor, ChoosesByDeviceAndType) {
  EXPECT_EQ(&kernels_for(c10::Device(c10::kCPU)), &cpu::kKernels);
  EXPECT_EQ(&kernels_for(c10::Device(c10::kCUDA, 0)), &plain::kKernels) << "it has none yet";
  EXPECT_EQ(&kernels_for(c10::Device(c10::kPrivateUse1, 0)), &plain::kKernels);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    EXPECT_EQ(&kernels_for(at::zeros({1}, type)), &cpu::kKernels);
  }
  EXPECT_EQ(&kernels_for(at::zeros({1}, at::kDouble)), &plain::kKernels);
}

}  // namespace
}  // namespace finetune::kernels
