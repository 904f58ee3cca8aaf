// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>

namespace finetune {

// Counts the bytes of the tensors that this thread creates on the meta device while the object
// lives: what the same code would allocate on a real device, without allocating it. One at a time
// in a thread; tensors may outlive it.
class MetaMemory {
 public:
  MetaMemory();
  ~MetaMemory();
  MetaMemory(const MetaMemory&) = delete;
  MetaMemory& operator=(const MetaMemory&) = delete;

  [[nodiscard]] int64_t now() const;   // alive
  [[nodiscard]] int64_t peak() const;  // the most that was alive at once

  struct Counts;

 private:
  std::shared_ptr<Counts> counts_;
};

}  // namespace finetune
