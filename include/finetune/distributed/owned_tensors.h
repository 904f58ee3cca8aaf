// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "finetune/distributed/world.h"

namespace finetune {

// The owner of each of several items of given sizes in bytes: the largest first, each to the rank
// with the fewest bytes so far. The same result on every rank.
[[nodiscard]] std::vector<int64_t> balanced_owners(const std::vector<int64_t>& bytes,
                                                   int64_t processes);

// Tensors that all processes have and one of them changes (the weights of ZeRO's stage 1).
class OwnedTensors {
 public:
  // `owners`: of each tensor; `buffer_bytes` are sent at a time. Requires: contiguous tensors whose
  // memory stays, the same in all processes.
  OwnedTensors(World& world, std::vector<Tensor> tensors, std::vector<int64_t> owners,
               int64_t buffer_bytes);

  // Brings what each of them changed to all others.
  void share();

 private:
  // Calls `action` with the parts of tensors in [begin, begin + buffer.numel()) of the owner's
  // bytes, and their positions in the buffer.
  template <class Action>
  void for_each_part(int64_t owner, int64_t begin, const Tensor& buffer, const Action& action);

  World& world_;
  std::vector<Tensor> bytes_;  // views of the tensors
  std::vector<int64_t> owners_;
  int64_t longest_ = 0;  // bytes of the process that has most
  Tensor part_;
  Tensor whole_;
};

}  // namespace finetune
