// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace finetune {

// Registers the operators that a model needs and libtorch's C++ lacks on the meta device; once.
void register_meta_operators();

// What a block of memory is for.
enum class MemoryUse : uint8_t { kOther, kGradient, kHead };

// Counts the bytes of the tensors that this thread creates on the meta device while the object
// exists: the memory that the same code would allocate on a real device. One object at a time per
// thread; tensors may outlive it.
class MetaMemory {
 public:
  MetaMemory();
  ~MetaMemory();
  MetaMemory(const MetaMemory&) = delete;
  MetaMemory& operator=(const MetaMemory&) = delete;

  [[nodiscard]] int64_t now() const;   // currently alive
  [[nodiscard]] int64_t peak() const;  // largest amount alive at once

  // An allocation, or the end of one.
  struct Event {
    size_t block = 0;   // numbered from 0 in the order of their allocation
    int64_t bytes = 0;  // negative: freed
    MemoryUse use = MemoryUse::kOther;
  };
  // All of them, in order.
  [[nodiscard]] const std::vector<Event>& events() const;

  struct Counts;

 private:
  std::shared_ptr<Counts> counts_;
};

// While it exists, the blocks that this thread allocates on the meta device are for `use`.
class MemoryUseScope {
 public:
  explicit MemoryUseScope(MemoryUse use);
  ~MemoryUseScope();
  MemoryUseScope(const MemoryUseScope&) = delete;
  MemoryUseScope& operator=(const MemoryUseScope&) = delete;

 private:
  MemoryUse before_;
};

}  // namespace finetune
