// SPDX-License-Identifier: MIT
#include "finetune/tensor/meta_memory.h"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "finetune/base/error.h"

namespace finetune {

struct MetaMemory::Counts {
  std::mutex mutex;  // other threads may free tensors
  int64_t now = 0;
  int64_t peak = 0;
  size_t blocks = 0;
  std::vector<Event> events;

  void add(const Event& event) {
    const std::lock_guard lock(mutex);
    events.push_back(event);
    now += event.bytes;
    peak = std::max(peak, now);
  }
};

namespace {

thread_local std::shared_ptr<MetaMemory::Counts> counts_of_thread;
thread_local MemoryUse use_of_thread = MemoryUse::kOther;

struct CountedBlock {
  std::shared_ptr<MetaMemory::Counts> counts;
  MetaMemory::Event allocation;
};

void release_counted(void* block) {
  const std::unique_ptr<CountedBlock> owned(static_cast<CountedBlock*>(block));
  MetaMemory::Event event = owned->allocation;
  event.bytes = -event.bytes;
  owned->counts->add(event);
}

class CountingMetaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(c10::kMeta);
    if (!counts_of_thread) return {nullptr, device};
    const MetaMemory::Event event = {.block = counts_of_thread->blocks++,
                                     .bytes = static_cast<int64_t>(bytes),
                                     .use = use_of_thread};
    counts_of_thread->add(event);
    auto block = std::make_unique<CountedBlock>(
        CountedBlock{.counts = counts_of_thread, .allocation = event});
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
  register_meta_operators();
  counts_of_thread = counts_;
}

MetaMemory::~MetaMemory() { counts_of_thread.reset(); }

int64_t MetaMemory::now() const { return counts_->now; }
int64_t MetaMemory::peak() const { return counts_->peak; }
const std::vector<MetaMemory::Event>& MetaMemory::events() const { return counts_->events; }

MemoryUseScope::MemoryUseScope(MemoryUse use) : before_(std::exchange(use_of_thread, use)) {}
MemoryUseScope::~MemoryUseScope() { use_of_thread = before_; }

}  // namespace finetune
