// SPDX-License-Identifier: MIT
#include "finetune/tensor/meta_memory.h"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <atomic>

#include "finetune/base/error.h"

namespace finetune {

struct MetaMemory::Counts {
  std::atomic<int64_t> now = 0;  // atomic: other threads may free tensors
  int64_t peak = 0;
};

namespace {

thread_local std::shared_ptr<MetaMemory::Counts> counts_of_thread;

struct CountedBlock {
  std::shared_ptr<MetaMemory::Counts> counts;
  int64_t bytes;
};

void release_counted(void* block) {
  const std::unique_ptr<CountedBlock> owned(static_cast<CountedBlock*>(block));
  owned->counts->now -= owned->bytes;
}

class CountingMetaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(c10::kMeta);
    if (!counts_of_thread) return {nullptr, device};
    MetaMemory::Counts& counts = *counts_of_thread;
    const int64_t now = counts.now += static_cast<int64_t>(bytes);
    counts.peak = std::max(counts.peak, now);
    auto block = std::make_unique<CountedBlock>(
        CountedBlock{.counts = counts_of_thread, .bytes = static_cast<int64_t>(bytes)});
    return {nullptr, block.release(), &release_counted, device};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* /*to*/, const void* /*from*/, size_t /*bytes*/) const override {}
};

void install_meta_allocator() {
  static CountingMetaAllocator allocator;
  static const bool kInstalled = (c10::SetAllocator(c10::kMeta, &allocator, 1), true);
  static_cast<void>(kInstalled);
}

}  // namespace

MetaMemory::MetaMemory() : counts_(std::make_shared<Counts>()) {
  FT_CHECK(!counts_of_thread, "one count of meta memory at a time");
  install_meta_allocator();
  counts_of_thread = counts_;
}

MetaMemory::~MetaMemory() { counts_of_thread.reset(); }

int64_t MetaMemory::now() const { return counts_->now; }
int64_t MetaMemory::peak() const { return counts_->peak; }

}  // namespace finetune
