// SPDX-License-Identifier: MIT
#include "finetune/kernels/quantized_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/loops/adamw_blocks.h"
#include "kernels/interface/dynamic_map.h"
#include "kernels/plain/operations.h"
#include "kernels/update_numbers.h"

namespace finetune {
namespace {

using kernels::AdamWNumbers;
using kernels::BitsAndBytesNumbers;
using kernels::kOurNumbers;
using kernels::kTheirNumbers;

constexpr float kInfiniteState = std::numeric_limits<float>::infinity();
constexpr float kNanState = std::numeric_limits<float>::quiet_NaN();
// One value, less than a block, a block, more, and more than one thread's part with a rest.
constexpr int64_t kCounts[] = {1, 100, 128, 256, 257, 4500, 20011};

Tensor normal(int64_t count, uint64_t seed) {
  return at::randn({count}, at::make_generator<at::CPUGeneratorImpl>(seed),
                   at::TensorOptions().dtype(at::kFloat));
}

// Values of many magnitudes, with blocks of zeros and single zeros.
Tensor heavy_tailed(int64_t count, uint64_t seed) {
  Tensor values = normal(count, seed) * at::exp(normal(count, seed + 1000) * 4.0);
  for (int64_t i = 0; i < count; i += 17) values[i] = 0.0;
  if (count > 1024) values.narrow(0, 512, 512).zero_();
  return values;
}

int64_t blocks_of(int64_t count, int64_t block) { return (count + block - 1) / block; }

DynamicState empty_dynamic(int64_t count) {
  const auto scales = [&] { return at::zeros({blocks_of(count, kDynamicBlock)}); };
  return {at::zeros({count}, at::kByte), at::zeros({count}, at::kByte), scales(), scales()};
}

CompandedState empty_companded(int64_t count) {
  const auto scales = [&] { return at::zeros({blocks_of(count, kCompandedGroup)}); };
  return {at::zeros({count}, at::kChar), scales(), at::zeros({count}, at::kByte), scales()};
}

WideState empty_wide(int64_t count) { return {at::zeros({count}), at::zeros({count})}; }

std::vector<Tensor> tensors_of(const DynamicState& s) {
  return {s.state1, s.state2, s.absmax1, s.absmax2};
}
std::vector<Tensor> tensors_of(const CompandedState& s) {
  return {s.exp_avg, s.exp_avg_scale, s.exp_avg_sq, s.exp_avg_sq_scale};
}
std::vector<Tensor> tensors_of(const WideState& s) { return {s.state1, s.state2}; }

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

template <typename State>
void expect_same(const Tensor& weight1, const State& state1, const Tensor& weight2,
                 const State& state2) {
  EXPECT_TRUE(same_bytes(weight1, weight2));
  const std::vector<Tensor> a = tensors_of(state1);
  const std::vector<Tensor> b = tensors_of(state2);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same_bytes(a[i], b[i])) << i;
}

// torch's square root is MKL's, whose last bit may differ; all other operations are the same.
template <typename State>
void expect_near(const Tensor& weight1, const State& state1, const Tensor& weight2,
                 const State& state2) {
  constexpr double kLastBits = 1e-6;
  EXPECT_TRUE(at::allclose(weight1, weight2, kLastBits, kLastBits));
  const std::vector<Tensor> a = tensors_of(state1);
  const std::vector<Tensor> b = tensors_of(state2);
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].is_floating_point()) {
      EXPECT_TRUE(at::allclose(a[i], b[i], kLastBits, 0.0)) << i;
    } else {
      EXPECT_TRUE(same_bytes(a[i], b[i])) << i;
    }
  }
}

AdamWUpdate update_of(int64_t t) {
  return {.learning_rate = 1e-2, .weight_decay = 0.1, .updates = t, .factor = 1.0};
}

Tensor gradient_of(int64_t count, int64_t t, bool is_finite) {
  Tensor gradient = heavy_tailed(count, static_cast<uint64_t>(t));
  if (!is_finite && count > 40) {
    gradient[3] = kNanState;
    gradient[39] = -kInfiniteState;
  }
  return gradient;
}

void kernel(const Tensor& weight, const Tensor& gradient, const DynamicState& s, bool portable) {
  const kernels::WeightBlock block{weight.mutable_data_ptr<float>(),
                                   gradient.const_data_ptr<float>(), weight.numel()};
  const kernels::DynamicBlock state{
      s.state1.mutable_data_ptr<uint8_t>(), s.state2.mutable_data_ptr<uint8_t>(),
      s.absmax1.mutable_data_ptr<float>(), s.absmax2.mutable_data_ptr<float>()};
  (portable ? kernels::update_dynamic_portable : kernels::update_dynamic)(block, state,
                                                                          kTheirNumbers);
}

void kernel(const Tensor& weight, const Tensor& gradient, const CompandedState& s, bool portable) {
  const kernels::WeightBlock block{weight.mutable_data_ptr<float>(),
                                   gradient.const_data_ptr<float>(), weight.numel()};
  const kernels::CompandedBlock state{
      s.exp_avg.mutable_data_ptr<int8_t>(), s.exp_avg_sq.mutable_data_ptr<uint8_t>(),
      s.exp_avg_scale.mutable_data_ptr<float>(), s.exp_avg_sq_scale.mutable_data_ptr<float>()};
  (portable ? kernels::update_companded_portable : kernels::update_companded)(block, state,
                                                                              kOurNumbers);
}

void kernel(const Tensor& weight, const Tensor& gradient, const WideState& s, bool portable) {
  const kernels::WeightBlock block{weight.mutable_data_ptr<float>(),
                                   gradient.const_data_ptr<float>(), weight.numel()};
  (portable ? kernels::update_wide_portable : kernels::update_wide)(
      block, s.state1.mutable_data_ptr<float>(), s.state2.mutable_data_ptr<float>(), kTheirNumbers);
}

void update_plainly(const ParameterTensors& p, const DynamicState& s,
                    const BitsAndBytesNumbers& n) {
  kernels::plain::update_dynamic(p, s, {}, n);
}
void update_plainly(const ParameterTensors& p, const CompandedState& s, const AdamWNumbers& n) {
  kernels::plain::update_companded(p, s, {}, n);
}
void update_plainly(const ParameterTensors& p, const WideState& s, const BitsAndBytesNumbers& n) {
  kernels::plain::update_wide(p, s, {}, n);
}

template <typename State, typename Numbers>
void expect_kernel_agrees(State (*make)(int64_t), const Numbers& numbers, bool is_finite) {
  for (const int64_t count : kCounts) {
    SCOPED_TRACE(count);
    const Tensor weight = normal(count, 7);
    const Tensor expected = weight.clone();
    const Tensor portable = weight.clone();
    const State state = make(count);
    const State expected_state = make(count);
    const State portable_state = make(count);
    for (int64_t t = 1; t <= 4; ++t) {
      const Tensor gradient = gradient_of(count, t, is_finite);
      kernel(weight, gradient, state, false);
      kernel(portable, gradient, portable_state, true);
      update_plainly({.weight = expected, .gradient = gradient}, expected_state, numbers);
      expect_same(weight, state, portable, portable_state);
      expect_near(weight, state, expected, expected_state);
    }
  }
}

// Every step is one correctly rounded operation in a fixed order, so vectors of every width and
// plain instructions give equal bits.
TEST(QuantizedState, KernelsHaveTheBitsOfPlainInstructionsAndTheNumbersOfTensorOperations) {
  expect_kernel_agrees(empty_dynamic, kTheirNumbers, true);
  expect_kernel_agrees(empty_companded, kOurNumbers, true);
  expect_kernel_agrees(empty_wide, kTheirNumbers, true);
}

TEST(QuantizedState, LeavesOutElementsWhoseGradientIsNotFinite) {
  expect_kernel_agrees(empty_dynamic, kTheirNumbers, false);
  const Tensor weight = normal(300, 1);
  const Tensor before = weight.clone();
  const DynamicState state = empty_dynamic(300);
  Tensor gradient = at::full({300}, 0.5F);
  gradient[3] = kNanState;
  gradient[290] = kInfiniteState;
  ParameterTensors parameter{.weight = weight, .gradient = gradient};
  update_adamw(parameter, state, update_of(1));
  const Tensor moment = at::empty({300});
  const Tensor square = at::empty({300});
  decode(state, moment, square);
  for (int64_t i = 0; i < 300; ++i) {
    const bool is_out = i == 3 || i == 290;
    EXPECT_EQ(weight[i].item<float>() == before[i].item<float>(), is_out) << i;
    EXPECT_EQ(moment[i].item<float>() == 0.0F, is_out) << i;
    EXPECT_EQ(square[i].item<float>() == 0.0F, is_out) << i;
  }
}

// Applying the factor and converting the format in the update equals doing both before it.
TEST(QuantizedState, TakesTheFactorToTheGradient) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const Tensor gradient = normal(5000, 3).to(type);
    const Tensor scaled = gradient.to(at::kFloat) * 0.3F;
    ParameterTensors one{.weight = normal(5000, 1), .gradient = gradient};
    ParameterTensors two{.weight = normal(5000, 1), .gradient = scaled};
    const CompandedState state1 = empty_companded(5000);
    const CompandedState state2 = empty_companded(5000);
    AdamWUpdate update = update_of(1);
    update.factor = 0.3;
    update_adamw(one, state1, update);
    update_adamw(two, state2, update_of(1));
    expect_same(one.weight, state1, two.weight, state2);
  }
}

// The nearest of all 256 codes, found by trying all; multiplying by 1 / absmax may err by an ulp.
TEST(DynamicState, HasTheNearestCodes) {
  const Tensor first = heavy_tailed(20000, 5);
  const Tensor second = heavy_tailed(20000, 6).square();
  const DynamicState state = empty_dynamic(20000);
  encode(first, second, state);
  const auto expect_nearest = [&](const Tensor& values, const Tensor& codes, const Tensor& absmax,
                                  bool is_signed) {
    const Tensor map = dynamic_map(is_signed);
    const float* entries = map.const_data_ptr<float>();
    for (int64_t i = 0; i < values.numel(); ++i) {
      const float largest = absmax[i / kDynamicBlock].item<float>();
      if (largest == 0.0F) continue;
      const double x = values.const_data_ptr<float>()[i] / largest;
      const uint8_t code = codes.const_data_ptr<uint8_t>()[i];
      double nearest = 2.0;
      for (int k = 0; k < 256; ++k) {
        // Only codes of the same sign; zero counts as positive.
        if (is_signed && std::signbit(entries[k]) != std::signbit(x)) continue;
        nearest = std::min(nearest, std::abs(x - entries[k]));
      }
      ASSERT_LE(std::abs(x - entries[code]), nearest + 2e-7 * std::abs(x)) << i << " " << x;
    }
  };
  expect_nearest(first, state.state1, state.absmax1, true);
  expect_nearest(second, state.state2, state.absmax2, false);
}

TEST(DynamicState, KeepsBlocksOfZeros) {
  const DynamicState state = empty_dynamic(600);
  encode(at::zeros({600}), at::zeros({600}), state);
  const Tensor first = at::full({600}, 9.0F);
  const Tensor second = at::full({600}, 9.0F);
  decode(state, first, second);
  EXPECT_EQ(first.abs().max().item<float>(), 0.0F);
  EXPECT_EQ(second.abs().max().item<float>(), 0.0F);
}

TEST(DynamicState, TakesBlocksOfSubnormalNumbersForZeros) {
  const DynamicState state = empty_dynamic(300);
  encode(at::full({300}, 1e-39F), at::full({300}, 1e-39F), state);
  EXPECT_EQ(state.absmax1.abs().max().item<float>(), 0.0F);
  EXPECT_EQ(state.absmax2.abs().max().item<float>(), 0.0F);
  encode(at::full({300}, 2e-38F), at::full({300}, 2e-38F), state);
  EXPECT_EQ(state.absmax1.min().item<float>(), 2e-38F);
  EXPECT_EQ(state.absmax2.min().item<float>(), 2e-38F);
}

TEST(DynamicState, IsAFixedPointOfDecodingAndEncoding) {
  const DynamicState once = empty_dynamic(4500);
  encode(heavy_tailed(4500, 8), heavy_tailed(4500, 9).abs(), once);
  const Tensor first = at::empty({4500});
  const Tensor second = at::empty({4500});
  decode(once, first, second);
  const DynamicState twice = empty_dynamic(4500);
  encode(first, second, twice);
  const Tensor again1 = at::empty({4500});
  const Tensor again2 = at::empty({4500});
  decode(twice, again1, again2);
  // -1 is not a code, so a block whose largest magnitude is negative shrinks to 0.993 of it.
  EXPECT_LE(((again1 - first).abs() - first.abs() * 0.01).max().item<double>(), 1e-3);
  EXPECT_TRUE(same_bytes(second, again2));
}

// m: half a step of 127 in 2 x / (1 + |x|), whose derivative is at least 1/2; v: half a step of 255
// in its square root.
TEST(CompandedState, IsWithinHalfAUnit) {
  const Tensor first = heavy_tailed(4480, 11);
  const Tensor second = heavy_tailed(4480, 12).square();
  const CompandedState state = empty_companded(4480);
  encode(first, second, state);
  const Tensor back1 = at::empty({4480});
  const Tensor back2 = at::empty({4480});
  decode(state, back1, back2);
  const auto scales = [](const Tensor& scale) { return scale.repeat_interleave(kCompandedGroup); };
  const Tensor x = (first.abs() / scales(state.exp_avg_scale)).nan_to_num();
  const Tensor bound = scales(state.exp_avg_scale) * (x + 1.0).square() / (4 * 127.0) * 1.02;
  EXPECT_TRUE(((first - back1).abs() <= bound).all().item<bool>());
  const Tensor roots = scales(state.exp_avg_sq_scale) / 510.0 * 1.0001;
  EXPECT_TRUE(((second.sqrt() - back2.sqrt()).abs() <= roots).all().item<bool>());
  EXPECT_TRUE((first.sign() * back1 >= 0).all().item<bool>());
}

TEST(CompandedState, IsAFixedPointOfDecodingAndEncoding) {
  const CompandedState once = empty_companded(4500);
  encode(heavy_tailed(4500, 8), heavy_tailed(4500, 9).abs(), once);
  const Tensor first = at::empty({4500});
  const Tensor second = at::empty({4500});
  decode(once, first, second);
  const CompandedState twice = empty_companded(4500);
  encode(first, second, twice);
  EXPECT_TRUE(same_bytes(once.exp_avg, twice.exp_avg));
  EXPECT_TRUE(same_bytes(once.exp_avg_sq, twice.exp_avg_sq));
}

// Half-precision scales would lose such moments; a group of subnormal numbers is the smallest
// possible.
TEST(CompandedState, KeepsTinyAndHugeMoments) {
  for (const float size : {1e-40F, 1e-30F, 1e-12F, 1e12F, 1e18F}) {
    const Tensor first = normal(256, 4) * size;
    const Tensor second = normal(256, 5).square() * size;
    const CompandedState state = empty_companded(256);
    encode(first, second, state);
    const Tensor back1 = at::empty({256});
    const Tensor back2 = at::empty({256});
    decode(state, back1, back2);
    const double largest = first.abs().max().item<double>();
    // Subnormal scales have fewer significant bits themselves.
    const double limit = size < 1e-38F ? 1.0 : 0.01;
    EXPECT_LE((first - back1).abs().max().item<double>(), limit * largest) << size;
    EXPECT_LE((second - back2).abs().max().item<double>(), limit * second.max().item<double>())
        << size;
  }
}

}  // namespace
}  // namespace finetune
