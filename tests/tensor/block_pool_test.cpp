// SPDX-License-Identifier: MIT
#include "tensor/block_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

namespace finetune {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(BlockPool, FillsTheSmallestHoleThatIsLargeEnough) {
  BlockPool pool(64 * kMiB);
  void* const large = pool.take(8 * kMiB);
  void* const first_wall = pool.take(kMiB);
  void* const small = pool.take(3 * kMiB);
  void* const second_wall = pool.take(kMiB);
  ASSERT_TRUE(pool.give_back(large));
  ASSERT_TRUE(pool.give_back(small));
  EXPECT_EQ(pool.take(3 * kMiB), small);
  EXPECT_EQ(pool.take(2 * kMiB), large);
  EXPECT_NE(first_wall, second_wall);
}

TEST(BlockPool, JoinsNeighbouringHoles) {
  BlockPool pool(64 * kMiB);
  void* const blocks[] = {pool.take(4 * kMiB), pool.take(4 * kMiB), pool.take(4 * kMiB)};
  void* const wall = pool.take(kMiB);
  for (const int i : {0, 2, 1}) ASSERT_TRUE(pool.give_back(blocks[i]));
  EXPECT_EQ(pool.take(12 * kMiB), blocks[0]);
  EXPECT_NE(wall, nullptr);
}

TEST(BlockPool, ExtendsTheHoleAtItsEnd) {
  BlockPool pool(16 * kMiB);
  void* const first = pool.take(8 * kMiB);
  ASSERT_TRUE(pool.give_back(first));
  void* const larger = pool.take(14 * kMiB);
  ASSERT_EQ(larger, first) << "only 16 MiB of addresses are there";
  std::memset(larger, 1, 14 * kMiB);
}

TEST(BlockPool, GivesBackWhatNobodyHas) {
  BlockPool pool(256 * kMiB);
  char* const kept = static_cast<char*>(pool.take(kMiB));
  char* const hole = static_cast<char*>(pool.take(4 * kMiB));
  char* const wall = static_cast<char*>(pool.take(kMiB));
  void* const after = pool.take(150 * kMiB);
  for (char* const block : {kept, hole, wall}) *block = 7;
  ASSERT_TRUE(pool.give_back(hole));
  ASSERT_TRUE(pool.give_back(after));
  pool.release_holes();
  EXPECT_EQ(*kept, 7);
  EXPECT_EQ(*wall, 7);
  ASSERT_EQ(pool.take(4 * kMiB), hole);
  EXPECT_EQ(*hole, 0) << "the system gave a fresh page";
  ASSERT_EQ(pool.take(150 * kMiB), after);
  std::memset(after, 1, 150 * kMiB);
}

TEST(BlockPool, BlocksAreAlignedAndTheirOwn) {
  BlockPool pool(64 * kMiB);
  void* const a = pool.take(kMiB + 1);
  void* const b = pool.take(kMiB + 1);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 64, 0U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b) % 64, 0U);
  std::memset(a, 1, kMiB + 1);
  std::memset(b, 2, kMiB + 1);
  EXPECT_EQ(static_cast<unsigned char*>(a)[kMiB], 1);
  EXPECT_EQ(static_cast<unsigned char*>(b)[0], 2);
}

TEST(BlockPool, SaysWhereItEnds) {
  BlockPool pool(4 * kMiB);
  EXPECT_EQ(pool.take(5 * kMiB), nullptr);
  EXPECT_EQ(pool.take(SIZE_MAX), nullptr);
  void* const block = pool.take(3 * kMiB);
  EXPECT_NE(block, nullptr);
  EXPECT_EQ(pool.take(2 * kMiB), nullptr);
  int elsewhere = 0;
  EXPECT_FALSE(pool.give_back(&elsewhere));
}

}  // namespace
}  // namespace finetune
