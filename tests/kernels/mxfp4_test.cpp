// SPDX-License-Identifier: MIT
#include "finetune/kernels/mxfp4.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/operations.h"
#include "kernels/plain/operations.h"

namespace finetune::kernels {
namespace {

// Every byte with every scale that a folder may have.
TEST(Mxfp4, HasTheValuesOfItsSpecification) {
  constexpr float kMagnitudes[] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  const Tensor codes = at::empty({256}, at::kByte);
  for (int byte = 0; byte < 256; ++byte) codes.mutable_data_ptr<uint8_t>()[byte] = byte;
  const Tensor scales = at::empty({16}, at::kByte);
  const auto meant = [&](int code, int scale) {
    return (code < 8 ? 1.0F : -1.0F) * std::ldexp(kMagnitudes[code % 8], scale - 127);
  };
  for (int scale = 0; scale <= kLargestMxfp4Scale; ++scale) {
    scales.fill_(scale);
    const Tensor values = dequantize_mxfp4(codes, scales, 0, 512, at::kFloat);
    for (int byte = 0; byte < 256; ++byte) {
      ASSERT_EQ(values.const_data_ptr<float>()[2 * byte], meant(byte & 15, scale)) << byte;
      ASSERT_EQ(values.const_data_ptr<float>()[2 * byte + 1], meant(byte >> 4, scale)) << byte;
    }
    ASSERT_TRUE(values.to(at::kBFloat16).to(at::kFloat).equal(values)) << scale;
  }
}

TEST(Mxfp4, AnyPartIsThatOfTheWholeAndTensorOperationsGiveTheSame) {
  const int64_t count = 50 * kMxfp4Block;
  const Tensor codes = at::randint(256, {count / 2}, at::kByte);
  const Tensor scales = at::randint(253, {count / kMxfp4Block}, at::kByte);
  const Tensor all = dequantize_mxfp4(codes, scales, 0, count, at::kFloat);
  for (const int64_t first : {int64_t{0}, kMxfp4Block, 49 * kMxfp4Block}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const Tensor expected = all.narrow(0, first, count - first).to(type);
      EXPECT_TRUE(cpu::dequantize_mxfp4(codes, scales, first, count - first, type).equal(expected));
      EXPECT_TRUE(
          plain::dequantize_mxfp4(codes, scales, first, count - first, type).equal(expected));
    }
  }
}

}  // namespace
}  // namespace finetune::kernels
