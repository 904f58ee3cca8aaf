// SPDX-License-Identifier: MIT
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <new>

#include "finetune/base/memory_status.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/tensor.h"

namespace finetune {
namespace {

uintptr_t address_of(const Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
}

TEST(HostAllocator, AlignsToCacheLines) {
  return_freed_memory();
  for (const int64_t bytes : {1, 63, 64, 100, 4096, 1 << 20}) {
    EXPECT_EQ(address_of(at::empty({bytes}, at::kByte)) % 64, 0) << bytes;
  }
}

// Memory that every step allocates and frees must be reused, otherwise memory grows.
TEST(HostAllocator, FillsAHoleWithATensorOfItsSize) {
  return_freed_memory();
  const KeptMemory kept;
  constexpr int64_t kBytes = 3 << 20;
  const Tensor before = at::empty({kBytes}, at::kByte);
  Tensor between = at::empty({kBytes}, at::kByte);
  const Tensor after = at::empty({kBytes}, at::kByte);
  const uintptr_t hole = address_of(between);
  between = Tensor();
  EXPECT_EQ(address_of(at::empty({kBytes}, at::kByte)), hole);
}

#ifndef __SANITIZE_THREAD__  // it keeps nothing
// What a long step kept for itself is not the next one's.
TEST(HostAllocator, GivesBackWhatWasKeptForAWhile) {
  return_freed_memory();
  constexpr int64_t kBytes = 64 << 20;
  const int64_t before = resident_memory();
  {
    const KeptMemory kept;
    const auto touch = [] { return address_of(at::ones({kBytes}, at::kByte)); };
    EXPECT_EQ(touch(), touch());
    EXPECT_GE(resident_memory(), before + kBytes / 2);
  }
  EXPECT_LE(resident_memory(), before + kBytes / 8);
}
#endif

// Sanitizers end the program there.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(HostAllocator, ThrowsWhereThereIsNoMore) {
  return_freed_memory();
  EXPECT_THROW((void)at::empty({int64_t{1} << 60}, at::kByte), std::bad_alloc);
}
#endif

TEST(ReleaseStartupCode, KeepsTheProgramRunning) {
  release_startup_code();
  EXPECT_EQ(at::empty({3}, at::kByte).numel(), 3);
}

// A raw read of what was freed, as a kernel with a stale address would make it.
TEST(HostAllocator, PoisonsWhatIsAllocatedAndFreedIfATestAsks) {
  ::setenv("FINETUNE_TEST_POISON_MEMORY", "1", 1);
  return_freed_memory();
  Tensor values = at::empty({1 << 22});
  EXPECT_TRUE(values.isnan().all().item<bool>());
  Tensor half = at::empty({100}, at::kBFloat16);
  EXPECT_TRUE(half.isnan().all().item<bool>());
  ::unsetenv("FINETUNE_TEST_POISON_MEMORY");
  return_freed_memory();
}

}  // namespace
}  // namespace finetune
