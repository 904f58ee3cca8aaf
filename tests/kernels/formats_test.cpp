// SPDX-License-Identifier: MIT
#include "finetune/kernels/formats.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "finetune/base/random.h"

namespace finetune {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = 0x1.fep127F;  // largest bfloat16

Tensor floats(const std::vector<float>& values) { return at::tensor(values, at::kFloat); }

// Values of every exponent and sign, subnormal numbers included, with random mantissas.
Tensor values_of_all_sizes(int64_t count) {
  random::Sequence numbers(17);
  std::vector<float> values;
  while (std::ssize(values) < count) {
    const float value = std::bit_cast<float>(numbers.next());
    if (std::isfinite(value) && std::abs(value) <= kLargest) values.push_back(value);
  }
  return floats(values);
}

Tensor rounded(const Tensor& values, const RoundingKey& key) {
  const Tensor target = at::empty(values.sizes(), values.options().dtype(at::kBFloat16));
  round_stochastically(target, values, key);
  return target;
}

struct Split {
  Tensor weight, correction;
};

Split split(const Tensor& values) {
  const Split result{at::empty(values.sizes(), values.options().dtype(at::kBFloat16)),
                     at::empty(values.sizes(), values.options().dtype(at::kChar))};
  split_values(values, result.weight, result.correction);
  return result;
}

Tensor joined(const Split& parts) {
  const Tensor values = at::empty(parts.weight.sizes(), at::kFloat);
  join_values(parts.weight, parts.correction, values);
  return values;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const auto type = a.element_size() == 4   ? at::kInt
                    : a.element_size() == 2 ? at::kShort
                                            : at::kChar;
  return at::equal(a.view(type), b.view(type));
}

TEST(StochasticRounding, KeepsTheMean) {
  // 1 + 2^-7 k / 8 is k eighths of the way to the next value; 2^16 draws, five standard deviations.
  for (const float eighths : {1.0F, 3.0F, 4.0F, 7.0F}) {
    for (const float sign : {1.0F, -1.0F}) {
      const float value = sign * (1.0F + 0x1.0p-10F * eighths);
      const Tensor result = rounded(at::full({65536}, value), {.key = 5}).to(at::kDouble);
      const double up = (result.abs() > 1.0).to(at::kDouble).mean().item<double>();
      EXPECT_NEAR(up, eighths / 8.0, 5.0 * 0.5 / 256.0);
      EXPECT_NEAR(result.mean().item<double>(), value, 5.0 * 0x1.0p-8 / 256.0);
    }
  }
}

TEST(StochasticRounding, ChoosesOneOfTheTwoNeighbours) {
  const Tensor values = values_of_all_sizes(100000);
  const Tensor result = rounded(values, {.key = 1}).to(at::kFloat);
  const Tensor down = values.view(at::kInt).bitwise_and(-65536).view(at::kFloat);
  const Tensor up = (values.view(at::kInt).bitwise_and(-65536) + 65536).view(at::kFloat);
  EXPECT_TRUE((result == down).logical_or(result == up).all().item<bool>());
}

TEST(StochasticRounding, LeavesWhatBFloat16HoldsAlone) {
  const Tensor values = values_of_all_sizes(10000).to(at::kBFloat16).to(at::kFloat);
  EXPECT_TRUE(same_bits(rounded(values, {.key = 2}), values.to(at::kBFloat16)));
}

TEST(StochasticRounding, KeepsTheClassOfValuesThatAreNotFinite) {
  const std::vector<float> special = {kInfinity,
                                      -kInfinity,
                                      kNan,
                                      std::bit_cast<float>(0x7F800001U),
                                      std::bit_cast<float>(0xFFFFFFFFU),
                                      0.0F,
                                      -0.0F,
                                      std::numeric_limits<float>::max(),
                                      std::numeric_limits<float>::lowest()};
  for (uint64_t key = 0; key < 50; ++key) {
    const Tensor result = rounded(floats(special), {.key = key}).to(at::kFloat);
    const auto at = [&](int64_t i) { return result[i].item<float>(); };
    EXPECT_EQ(at(0), kInfinity);
    EXPECT_EQ(at(1), -kInfinity);
    EXPECT_TRUE(std::isnan(at(2)) && std::isnan(at(3)) && std::isnan(at(4)));
    EXPECT_TRUE(at(5) == 0.0F && !std::signbit(at(5)));
    EXPECT_TRUE(at(6) == 0.0F && std::signbit(at(6)));
    EXPECT_EQ(at(7), kLargest);
    EXPECT_EQ(at(8), -kLargest);
  }
}

TEST(StochasticRounding, UsesTheDocumentedNumbers) {
  const uint64_t key = 0x123456789ABCDEF0;
  const uint64_t first = (uint64_t{1} << 35) + 13;
  const Tensor values = values_of_all_sizes(1000);
  const Tensor result = rounded(values, {.key = key, .first_element = first});
  for (int64_t i = 0; i < values.numel(); ++i) {
    const uint64_t element = first + static_cast<uint64_t>(i);
    const auto block = random::philox(
        {static_cast<uint32_t>(element / 8), static_cast<uint32_t>(element / 8 >> 32), 0, 0},
        {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
    const uint32_t number = block[element / 2 % 4] >> (16 * (element % 2)) & 0xFFFF;
    const auto bits = std::bit_cast<uint32_t>(values[i].item<float>());
    ASSERT_EQ(result.view(at::kShort)[i].item<int16_t>(),
              static_cast<int16_t>((bits + number) >> 16))
        << i;
  }
}

TEST(StochasticRounding, DependsOnNeitherTheCutNorTheThreads) {
  const Tensor values = values_of_all_sizes(100003);
  const Tensor whole = rounded(values, {.key = 9, .first_element = 3});
  const Tensor parts = at::empty_like(whole);
  for (int64_t begin = 0; begin < values.numel(); begin += 777) {
    const int64_t count = std::min<int64_t>(777, values.numel() - begin);
    round_stochastically(parts.narrow(0, begin, count), values.narrow(0, begin, count),
                         {.key = 9, .first_element = 3 + static_cast<uint64_t>(begin)});
  }
  EXPECT_TRUE(same_bits(whole, parts));
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Tensor alone = rounded(values, {.key = 9, .first_element = 3});
  at::set_num_threads(threads);
  EXPECT_TRUE(same_bits(whole, alone));
}

TEST(StochasticAddition, RoundsTheSumOfFloat32) {
  const Tensor target = values_of_all_sizes(3000).clamp(-1e6, 1e6).to(at::kBFloat16);
  const Tensor values = values_of_all_sizes(3000).flip(0).clamp(-1e6, 1e6);
  const Tensor expected = rounded(target.to(at::kFloat) + values, {.key = 4});
  add_stochastically(target, values, {.key = 4});
  EXPECT_TRUE(same_bits(target, expected));
}

TEST(StochasticAddition, SumsWhatNearestRoundingLoses) {
  // 1 + 4096 x 2^-12 = 2; each addend is a 32nd of the distance to the next value.
  const Tensor target = at::full({256}, 1.0, at::kBFloat16);
  const Tensor addend = at::full({256}, 0x1.0p-12F);
  for (uint64_t i = 0; i < 4096; ++i) add_stochastically(target, addend, {.key = i});
  EXPECT_NEAR(target.to(at::kDouble).mean().item<double>(), 2.0, 0.02);
}

TEST(SplitValues, RoundToTheNearestBFloat16) {
  const Tensor values = values_of_all_sizes(100000);
  EXPECT_TRUE(same_bits(split(values).weight, values.to(at::kBFloat16)));
}

// |x - back| <= ulp(w) / 2 / 127 / 2 for rounding to 127 steps of half an ulp, plus half an ulp of
// float32 for each of the two roundings on the way back.
TEST(SplitValues, KeepTwentyFourBits) {
  const Tensor values = values_of_all_sizes(200000);
  const Split parts = split(values);
  const Tensor error = (joined(parts).to(at::kDouble) - values.to(at::kDouble)).abs();
  for (int64_t i = 0; i < values.numel(); ++i) {
    const int exponent = std::max(std::ilogb(parts.weight[i].item<float>()), -126);
    const double ulp = std::ldexp(1.0, exponent - 7);
    const double bound = ulp / 508 + std::ldexp(1.0, std::max(exponent - 23, -149));
    ASSERT_LE(error[i].item<double>(), bound) << values[i].item<float>();
    if (i == 20000) break;
  }
  const Tensor normal = values.abs() > 0x1.0p-120;
  const Tensor relative = (error / values.to(at::kDouble).abs()).masked_select(normal);
  EXPECT_LE(relative.max().item<double>(), 0x1.04p-16);
  EXPECT_LE(relative.mean().item<double>(), 0x1.0p-17);
}

TEST(SplitValues, FollowTheFormula) {
  const Tensor values = values_of_all_sizes(20000);
  const Split parts = split(values);
  for (int64_t i = 0; i < values.numel(); ++i) {
    const double w = parts.weight[i].item<float>();
    const double half = std::ldexp(1.0, std::max(std::ilogb(w), -126) - 8);
    const double q = 127.0 * (values[i].item<float>() - w) / half;
    ASSERT_EQ(parts.correction[i].item<int>(), static_cast<int>(std::round(q))) << i;
  }
}

TEST(SplitValues, ComeBackTheSameWhenSplitAgain) {
  const Split parts = split(values_of_all_sizes(100000));
  const Tensor once = joined(parts);
  // Below a power of two values are twice as dense, so a correction of -64 is one of them.
  const Tensor mantissa = parts.weight.view(at::kShort).bitwise_and(0x7F);
  const Tensor inside = (mantissa != 0).logical_and(mantissa != 0x7F);
  EXPECT_TRUE(at::equal(joined(split(once)).masked_select(inside), once.masked_select(inside)));
}

TEST(SplitValues, AreExactForWhatBFloat16Holds) {
  const Tensor values = values_of_all_sizes(10000).to(at::kBFloat16).to(at::kFloat);
  const Split parts = split(values);
  EXPECT_EQ(parts.correction.count_nonzero().item<int64_t>(), 0);
  EXPECT_TRUE(same_bits(joined(parts), values));
}

TEST(SplitValues, KeepTheClassOfValuesThatAreNotFinite) {
  const Tensor back = joined(split(floats(
      {kInfinity, -kInfinity, kNan, 0.0F, -0.0F, std::numeric_limits<float>::max(), 0x1.0p-149F})));
  EXPECT_EQ(back[0].item<float>(), kInfinity);
  EXPECT_EQ(back[1].item<float>(), -kInfinity);
  EXPECT_TRUE(std::isnan(back[2].item<float>()));
  EXPECT_FALSE(std::signbit(back[3].item<float>()));
  EXPECT_TRUE(std::signbit(back[4].item<float>()));
  EXPECT_TRUE(std::isfinite(back[5].item<float>()));
  EXPECT_LE(back[6].item<float>(), 0x1.0p-140F);
}

}  // namespace
}  // namespace finetune
