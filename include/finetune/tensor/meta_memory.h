// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>

namespace finetune {

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

  struct Counts;

 private:
  std::shared_ptr<Counts> counts_;
};

}  // namespace finetune
