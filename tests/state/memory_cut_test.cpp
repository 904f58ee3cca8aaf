// SPDX-License-Identifier: MIT
#include "finetune/state/memory_cut.h"

#include <gtest/gtest.h>

namespace finetune {
namespace {

TEST(MemoryCut, HoldsForTheSizesThatItWasFoundWith) {
  const MemoryCut saved{.asked_train = 8, .train = 4, .asked_eval = 16, .eval = 2};
  EXPECT_EQ(usable_cut(saved, 8, 16, 24), saved);
  EXPECT_EQ(usable_cut(saved, 4, 16, 24).train, 0) << "another size is asked for";
  EXPECT_EQ(usable_cut(saved, 4, 16, 24).eval, 2);
  EXPECT_EQ(usable_cut(saved, 8, 8, 24).eval, 0);
  EXPECT_EQ(usable_cut(saved, 8, 16, 6).train, 0) << "it does not divide the batch";
  EXPECT_EQ(usable_cut({}, 8, 16, 24), MemoryCut());
}

}  // namespace
}  // namespace finetune
