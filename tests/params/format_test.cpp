// SPDX-License-Identifier: MIT
#include "finetune/params/format.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "finetune/tensor/meta_memory.h"

namespace finetune {
namespace {

constexpr WeightFormat kAllFormats[] = {WeightFormat::kFloat32, WeightFormat::kBFloat16,
                                        WeightFormat::kSplit,   WeightFormat::kFloat16,
                                        WeightFormat::kNf4,     WeightFormat::kNf4Nested};

// Half a unit in the last place: bfloat16 has 8 significant bits, the correction 8 more;
// float16 11.
constexpr double kTolerances[] = {0.0, 0x1p-8, 0x1p-15, 0x1p-11, 0.0, 0.0};
// Of four bits: half the largest distance between two values, of a block's largest one.
constexpr double kAbsolute[] = {0.0, 0.0, 0.0, 0.0, 0.16 * 4.5, 0.16 * 4.5};

class EveryWeightFormat : public testing::TestWithParam<WeightFormat> {
 protected:
  const WeightFormatTraits& format = traits_of(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Formats, EveryWeightFormat, testing::ValuesIn(kAllFormats),
                         [](const auto& test) {
                           return std::to_string(static_cast<int>(test.param));
                         });

TEST_P(EveryWeightFormat, GivesBackWhatIsAssigned) {
  at::manual_seed(7);  // no value that is subnormal in float16
  const Tensor values = at::randn({70, 30});
  const ParameterTensors stored = format.allocate(values.sizes(), at::kCPU);
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    format.assign(stored, values.to(type));
    const Tensor rows = format.rows(stored, values.sizes(), 0, 70);
    EXPECT_EQ(rows.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::allclose(rows, values, kTolerances[static_cast<size_t>(GetParam())],
                             kAbsolute[static_cast<size_t>(GetParam())]));
    EXPECT_TRUE(format.rows(stored, values.sizes(), 9, 5).equal(rows.narrow(0, 9, 5)));
    if (format.unpack != nullptr) {  // of matrices that are not looked up
      EXPECT_TRUE(
          format.unpack(stored, values.sizes(), at::kBFloat16).equal(rows.to(at::kBFloat16)));
      continue;
    }
    const Tensor ids = at::arange(12).flip(0).view({3, 4});
    EXPECT_TRUE(format.gather(stored, ids).equal(rows.index({ids})));
  }
}

TEST_P(EveryWeightFormat, TakesTheBytesAndTypesThatItDeclares) {
  const ParameterTensors stored = format.allocate({70, 30}, at::kCPU);
  EXPECT_EQ(stored.weight.scalar_type(), format.type);
  EXPECT_EQ(stored.correction.defined(), format.has_correction);
  const size_t correction = format.has_correction ? stored.correction.nbytes() : 0;
  const size_t scales = stored.scales.defined() ? stored.scales.nbytes() : 0;
  EXPECT_NEAR(stored.weight.nbytes() + correction + scales, 70 * 30 * format.bytes,
              stored.scales.defined() ? 4.0 : 0.0);
}

// A dry run asks for shapes alone.
TEST_P(EveryWeightFormat, AllocatesNothingOnTheMetaDevice) {
  const ParameterTensors stored = format.allocate({1 << 20, 1 << 20}, at::kMeta);
  EXPECT_TRUE(stored.weight.is_meta());
  if (format.unpack != nullptr) return;  // embeddings keep 16 bits
  register_meta_operators();
  const Tensor ids = at::arange(6, at::TensorOptions(at::kMeta).dtype(at::kLong)).view({2, 3});
  EXPECT_EQ(format.gather(stored, ids).sizes(), (std::vector<int64_t>{2, 3, 1 << 20}));
}

}  // namespace
}  // namespace finetune
