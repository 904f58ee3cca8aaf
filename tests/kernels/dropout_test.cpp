// SPDX-License-Identifier: MIT
#include "finetune/kernels/dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include <array>

#include "finetune/base/random.h"
#include "kernels/cpu/loops/philox.h"

namespace finetune {
namespace {

constexpr DropoutStream kStream{.seed = 42, .update = 7, .first_position = 0};

Tensor drop(const Tensor& x, const DropoutStream& stream, int64_t layer = 3,
            DropoutSite site = DropoutSite::kAttentionOutput) {
  return dropout(x, 0.25, stream, layer, site);
}

TEST(Dropout, EqualsThePlainTensorReference) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{
           {3, 5, 70}, {1, 1, 1}, {2, 3, 64}, {2, 4, 9, 9}, {2, 2, 3, 130}}) {
    const Tensor x = at::rand(shape) + 0.5;
    const Tensor mask = dropout_mask_reference(x, 0.25, kStream, 3, DropoutSite::kAttentionOutput);
    EXPECT_TRUE(drop(x, kStream).equal(x * mask)) << x;
  }
}

TEST(Dropout, FollowsThePhiloxDefinition) {
  const Tensor y = drop(at::ones({1, 2, 8}), {.seed = 42, .update = 7, .first_position = 5});
  const uint64_t key = random::make_key(42, random::Purpose::kDropout, 7);
  for (uint32_t t = 0; t < 2; ++t) {
    for (uint32_t e = 0; e < 8; ++e) {
      const auto block =
          random::philox({e / 4, t, 5, 3 << 8 | 2},
                         {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
      const float expected = block[e % 4] < (uint32_t{1} << 30) ? 0.0F : 1.0F / 0.75F;
      EXPECT_FLOAT_EQ(y[0][t][e].item<float>(), expected) << t << " " << e;
    }
  }
}

TEST(Dropout, EveryProcessorsInstructionsMakeTheSameFactors) {
  const kernels::DropoutRow row = {.row = 4000000000,
                                   .position = 17,
                                   .layer_and_site = 3 << 8 | 2,
                                   .key = {0x89ABCDEF, 0x01234567},
                                   .threshold = 0x90000000,
                                   .scale = 1.5F};
  for (const int64_t count : {1, 63, 64, 65, 1500}) {
    const auto size = static_cast<size_t>(count);
    std::vector<float> best(size + kernels::kDropoutNumbers);
    std::vector<float> portable(best.size());
    std::vector<float> avx2(best.size());
    kernels::dropout_factors(row, count, best.data());
    kernels::dropout_factors_portable(row, count, portable.data());
    const bool has_avx2 = kernels::dropout_factors_avx2(row, count, avx2.data());
    for (auto* factors : {&best, &portable, &avx2}) factors->resize(size);
    EXPECT_EQ(best, portable) << count;
    if (has_avx2) {
      EXPECT_EQ(avx2, portable) << count;
    }
  }
}

TEST(PhiloxWords, AreThoseOfEveryProcessorsInstructions) {
  constexpr int64_t kCount = 3 * kernels::kPhiloxBlocks;
  constexpr uint64_t kKey = 0x0123456789ABCDEF;
  for (const uint64_t first : {uint64_t{0}, uint64_t{5}, (uint64_t{7} << 32) - 20}) {
    std::array<std::vector<uint32_t>, 3> words;
    for (auto& some : words) some.resize(4 * kCount);
    kernels::philox_words(first, kKey, kCount, words[0].data());
    kernels::philox_words_portable(first, kKey, kCount, words[1].data());
    const bool has_avx2 = kernels::philox_words_avx2(first, kKey, kCount, words[2].data());
    EXPECT_EQ(words[0], words[1]);
    if (has_avx2) {
      EXPECT_EQ(words[2], words[1]);
    }
    const uint64_t last = first + kCount - 1;
    const auto block =
        random::philox({static_cast<uint32_t>(last), static_cast<uint32_t>(last >> 32), 0, 0},
                       {static_cast<uint32_t>(kKey), static_cast<uint32_t>(kKey >> 32)});
    EXPECT_EQ((std::vector<uint32_t>(words[1].end() - 4, words[1].end())),
              (std::vector<uint32_t>(block.begin(), block.end())));
  }
}

TEST(Dropout, DoesNotDependOnHowTheBatchIsCut) {
  const Tensor x = at::rand({6, 4, 33});
  const Tensor whole = drop(x, kStream);
  const Tensor parts =
      at::cat({drop(x.narrow(0, 0, 2), {42, 7, 0}), drop(x.narrow(0, 2, 4), {42, 7, 2})});
  EXPECT_TRUE(whole.equal(parts));
}

TEST(Dropout, DoesNotDependOnPadding) {
  const Tensor x = at::ones({2, 2, 10, 10});
  const Tensor small = drop(x.narrow(2, 0, 7).narrow(3, 0, 7).contiguous(), kStream);
  EXPECT_TRUE(drop(x, kStream).narrow(2, 0, 7).narrow(3, 0, 7).equal(small));
}

TEST(Dropout, DiffersBetweenUpdatesLayersAndSites) {
  const Tensor x = at::ones({2, 8, 64});
  const Tensor base = drop(x, kStream);
  EXPECT_FALSE(base.equal(drop(x, {42, 8, 0})));
  EXPECT_FALSE(base.equal(drop(x, {43, 7, 0})));
  EXPECT_FALSE(base.equal(drop(x, kStream, 4)));
  EXPECT_FALSE(base.equal(drop(x, kStream, 3, DropoutSite::kFeedForwardOutput)));
}

TEST(Dropout, KeepsTheExpectedShareAndMean) {
  const Tensor y = drop(at::ones({16, 64, 256}), kStream);
  EXPECT_NEAR(y.eq(0).to(at::kFloat).mean().item<double>(), 0.25, 0.005);
  EXPECT_NEAR(y.mean().item<double>(), 1.0, 0.005);
}

TEST(Dropout, BackwardUsesTheSameMask) {
  Tensor x = at::rand({2, 3, 40}).requires_grad_();
  const Tensor weight = at::rand({2, 3, 40});
  (drop(x, kStream) * weight).sum().backward();
  const Tensor mask = dropout_mask_reference(x, 0.25, kStream, 3, DropoutSite::kAttentionOutput);
  EXPECT_TRUE(at::allclose(x.grad(), mask * weight, 1e-6, 1e-7));
}

TEST(Dropout, WithProbabilityZeroIsTheIdentity) {
  const Tensor x = at::rand({2, 3, 4});
  EXPECT_TRUE(dropout(x, 0.0, kStream, 0, DropoutSite::kEmbeddings).is_same(x));
}

}  // namespace
}  // namespace finetune
