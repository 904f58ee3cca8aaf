// SPDX-License-Identifier: MIT
#include "finetune/kernels/nf4.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/operations.h"
#include "kernels/plain/operations.h"

namespace finetune::kernels {
namespace {

struct Quantized {
  explicit Quantized(const Tensor& values)
      : codes(at::empty({nf4_code_bytes(values.numel())}, at::kByte)),
        scales(at::empty({nf4_blocks(values.numel())}, at::kFloat)) {
    quantize_nf4(values, codes, scales);
  }
  [[nodiscard]] int code(int64_t i) const {
    const int both = codes[i / 2].item<int>();
    return i % 2 == 0 ? both >> 4 : both & 15;
  }
  Tensor codes, scales;
};

Tensor row(const std::vector<float>& values) { return at::tensor(values, at::kFloat); }

// Dettmers et al. 2023: quantiles of the normal distribution, 8 of negative and 9 of other numbers
// with equal shares up to 0.9677083, divided by the largest.
TEST(Nf4, ValuesAreQuantilesOfTheNormalDistribution) {
  constexpr double kLast = 0.9677083;
  const auto share_below = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  double largest = 1.0;
  for (int i = 0; i < 50; ++i) {  // Newton
    const double density = std::exp(-largest * largest / 2.0) / std::sqrt(2.0 * M_PI);
    largest -= (share_below(largest) - kLast) / density;
  }
  const auto& map = nf4_map();
  for (size_t k = 0; k < map.size(); ++k) {
    const double parts = k < 7 ? 7.0 : 8.0;
    const double share = 0.5 + (static_cast<double>(k) - 7.0) / parts * (kLast - 0.5);
    EXPECT_NEAR(share_below(map[k] * largest), share, 1e-6) << k;
  }
}

TEST(Nf4, TakesTheNearestValueAndOfTwoTheLower) {
  const auto& map = nf4_map();
  std::vector<float> values(64, 0.0F);
  values[0] = 1.0F;  // the scale
  for (size_t k = 0; k + 1 < map.size(); ++k) {
    const float middle = (map[k] + map[k + 1]) / 2.0F;
    values[3 * k + 1] = middle;
    values[3 * k + 2] = std::nextafter(middle, 2.0F);
    values[3 * k + 3] = std::nextafter(middle, -2.0F);
  }
  const Quantized quantized(row(values));
  EXPECT_EQ(quantized.scales.item<float>(), 1.0F);
  EXPECT_EQ(quantized.code(0), 15);
  for (int k = 0; k < 15; ++k) {
    EXPECT_EQ(quantized.code(3 * k + 1), k);
    EXPECT_EQ(quantized.code(3 * k + 2), k + 1);
    EXPECT_EQ(quantized.code(3 * k + 3), k);
  }
}

TEST(Nf4, OfNothingAndOfTheSmallestNumbersIsZero) {
  for (const float value : {0.0F, -0.0F}) {
    const Quantized quantized(row(std::vector<float>(64, value)));
    EXPECT_EQ(quantized.scales.item<float>(), 0.0F);
    EXPECT_EQ(quantized.code(5), 7);
  }
  // A whole block keeps a scale below 1e-38, a short one does not.
  const Quantized whole(row(std::vector<float>(64, 1e-39F)));
  EXPECT_EQ(whole.scales.item<float>(), 1e-39F);
  const Quantized part(row({1e-39F, 0.0F, 0.0F}));
  EXPECT_EQ(part.scales.item<float>(), 1e-38F);
  EXPECT_EQ(part.code(3), 7);  // the padding of an odd count
}

TEST(Nf4, DoesNotDependOnThreadsAndAnyPartIsThatOfTheWhole) {
  for (const int64_t count : {1, 5, 63, 64, 65, 127, 4097, 300'001}) {
    const Tensor values = at::randn({count});
    const Quantized quantized(values);
    const Tensor all = dequantize_nf4(quantized.codes, quantized.scales, 0, count, at::kFloat);
    EXPECT_LE((all - values).abs().max().item<float>(),
              0.16F * quantized.scales.max().item<float>());
    for (const int64_t first : {int64_t{0}, int64_t{1}, int64_t{32}, int64_t{64}, count / 3}) {
      if (first >= count) continue;
      for (const int64_t some : {int64_t{1}, (count - first) / 2, count - first}) {
        if (some == 0) continue;
        for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
          const Tensor expected = all.narrow(0, first, some).to(type);
          EXPECT_TRUE(
              dequantize_nf4(quantized.codes, quantized.scales, first, some, type).equal(expected));
          EXPECT_TRUE(cpu::dequantize_nf4(quantized.codes, quantized.scales, first, some, type)
                          .equal(expected));
          EXPECT_TRUE(plain::dequantize_nf4(quantized.codes, quantized.scales, first, some, type)
                          .equal(expected));
        }
      }
    }
  }
}

TEST(Nf4, DoubleQuantisationKeepsScalesToASmallShare) {
  const Tensor scales = at::randn({1000}).abs() + 0.5F;
  const NestedNf4Scales nested = quantize_nf4_scales(scales);
  EXPECT_EQ(nested.absmax.numel(), 4);
  EXPECT_LE((nested.unpack() - scales).abs().max().item<float>(), 0.03F);
  EXPECT_TRUE(quantize_nf4_scales(nested.unpack()).unpack().allclose(nested.unpack(), 0.02));
}

}  // namespace
}  // namespace finetune::kernels
