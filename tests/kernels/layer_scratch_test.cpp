// SPDX-License-Identifier: MIT
#include "finetune/kernels/layer_scratch.h"

#include <gtest/gtest.h>

namespace finetune::kernels {
namespace {

constexpr LayerSizes kSizes = {.tokens = 4 * 1024,
                               .length = 1024,
                               .hidden = 64,
                               .intermediate = 256,
                               .heads = 4,
                               .sums = 9 * 64 + 256,
                               .element = 4,
                               .threads = 2};

TEST(LayerScratch, OfTheCpuIsThatOfBlockSparseAttentionAlone) {
  const LayerScratch full = layer_scratch(KernelTable::kCpu, kSizes);
  EXPECT_EQ(full.forward + full.backward + full.block_backward, 0);
  LayerSizes sizes = kSizes;
  sizes.block = 64;
  const int64_t context = 4 * 1024 * 64 * 4;
  const int64_t head = 9 * 1024 * 16 * 4;
  EXPECT_EQ(layer_scratch(KernelTable::kCpu, sizes).block_backward, context + 2 * head);
  sizes.threads = 100;
  EXPECT_EQ(layer_scratch(KernelTable::kCpu, sizes).block_backward, context + 16 * head)
      << "no more than there are heads";
}

TEST(LayerScratch, OfAtensOperatorsIsBoundedByTheScoresComputedAtATime) {
  const int64_t row = 4 * 1024 * 1024;  // scores
  EXPECT_EQ(layer_scratch(KernelTable::kPlain, kSizes).forward, 64 * row);
  LayerSizes more = kSizes;
  more.tokens *= 2;
  EXPECT_EQ(layer_scratch(KernelTable::kPlain, more).forward, 64 * row);
}

TEST(LayerScratch, OfCompiledKernelsHasSumsOverRowsInTheBackwardPass) {
  const LayerScratch scratch = layer_scratch(KernelTable::kCuda, kSizes);
  LayerSizes without = kSizes;
  without.sums = 0;
  const LayerScratch less = layer_scratch(KernelTable::kCuda, without);
  EXPECT_EQ(scratch.forward, less.forward);
  EXPECT_EQ(scratch.backward - less.backward, 4 * 256 * kSizes.sums);
}

}  // namespace
}  // namespace finetune::kernels
