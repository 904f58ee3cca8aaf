// SPDX-License-Identifier: MIT
#include "finetune/tensor/finite.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <gtest/gtest.h>

#include <limits>

#include "finetune/base/error.h"
#include "finetune/tensor/safetensors.h"
#include "finetune/tensor/torch_file.h"
#include "support/golden.h"

namespace finetune {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class Finite : public ::testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, Finite,
                         ::testing::Values(at::kFloat, at::kBFloat16, at::kHalf, at::kDouble),
                         [](const auto& type) { return std::string(c10::toString(type.param)); });

TEST_P(Finite, FindsEveryKindOfNoNumberAtEveryPosition) {
  for (const int64_t size : {1, 3, 1023, 1024, 1025, 5000}) {
    for (const double wrong : {kNan, -kNan, kInfinity, -kInfinity}) {
      for (const int64_t position : {int64_t{0}, size / 2, size - 1}) {
        const Tensor values = at::ones({size}, GetParam());
        values[position].fill_(wrong);
        EXPECT_FALSE(is_finite(values)) << size << " " << wrong << " " << position;
        EXPECT_EQ(first_nonfinite(values), position) << size << " " << wrong;
      }
    }
  }
}

TEST_P(Finite, TakesTheLargestAndSmallestNumbers) {
  const Tensor values = at::ones({3000}, GetParam());
  const double largest = GetParam() == at::kHalf       ? 65504.0
                         : GetParam() == at::kBFloat16 ? 3.38e38
                         : GetParam() == at::kFloat    ? std::numeric_limits<float>::max()
                                                       : std::numeric_limits<double>::max();
  values[7].fill_(largest);
  values[8].fill_(-largest);
  values[9].fill_(0.0);
  values[10].fill_(1e-40);
  EXPECT_TRUE(is_finite(values));
  EXPECT_EQ(first_nonfinite(values), std::nullopt);
}

TEST(FiniteTensors, MayHaveGapsOrNothing) {
  const Tensor values = at::ones({64, 8});
  values[3][5].fill_(kNan);
  EXPECT_FALSE(is_finite(values.t()));
  EXPECT_TRUE(is_finite(values.narrow(1, 0, 5)));
  EXPECT_TRUE(is_finite(at::ones({0})));
  EXPECT_TRUE(is_finite(at::ones({4}, at::kLong)));
  EXPECT_FALSE(is_finite(at::ones({300000}).fill_(1.0).index_fill_(
      0, at::scalar_tensor(299999, at::kLong), kInfinity)));
}

class Sink final : public WritableFile {
 public:
  using WritableFile::write;
  void write(const void*, size_t) override {}
  void sync() override {}
  void close() override {}
};

template <class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    return error.what();
  }
  return "(no error)";
}

TEST(FiniteTensors, AreAllThatIsWritten) {
  const Tensor values = at::ones({3, 1 << 20});  // more than one piece
  values[2][5].fill_(-kInfinity);
  Sink sink;
  const NamedTensors named = {{"good", at::ones({2})}, {"layer.weight", values}};
  EXPECT_GOLDEN(error_of([&] { write_safetensors(sink, named); }));
  TorchDict dict;
  dict.set("state", values);
  EXPECT_NE(error_of([&] { write_torch_file(sink, dict); }).find("element 2097157"),
            std::string::npos);
}

}  // namespace
}  // namespace finetune
