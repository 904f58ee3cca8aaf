// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace finetune::testing {

// During its lifetime, counts the bytes of CPU tensors that this thread allocates and has not
// freed, and their maximum.
class TensorMemory {
 public:
  TensorMemory()
      : counter_(std::make_shared<Counter>()),
        guard_(c10::DebugInfoKind::PROFILER_STATE, counter_) {}

  [[nodiscard]] int64_t peak_bytes() const { return counter_->peak; }

 private:
  struct Counter final : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
      now += size;
      peak = std::max(peak, now);
    }
    [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }

    int64_t now = 0;
    int64_t peak = 0;
  };

  std::shared_ptr<Counter> counter_;
  c10::DebugInfoGuard guard_;
};

}  // namespace finetune::testing
