// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "finetune/distributed/world.h"

namespace finetune {

// Assigns items of given sizes in bytes to ranks: the largest first, each to the rank with the
// fewest bytes so far. The result is the same on every rank.
[[nodiscard]] std::vector<int64_t> balanced_owners(const std::vector<int64_t>& bytes,
                                                   int64_t processes);

// Tensors that all ranks have but only their owner changes (the weights in ZeRO stage 1).
class OwnedTensors {
 public:
  // `owners`: the rank that owns each tensor; `buffer_bytes`: sent at a time. Requires: contiguous
  // tensors whose memory does not move, with the same sizes on all ranks.
  OwnedTensors(World& world, std::vector<Tensor> tensors, std::vector<int64_t> owners,
               int64_t buffer_bytes);

  // Copies the owners' values to all other ranks.
  void share();

 private:
  // Calls `action` with the parts of the owner's tensors in bytes [begin, begin + buffer.numel()),
  // and their positions in the buffer.
  template <class Action>
  void for_each_part(int64_t owner, int64_t begin, const Tensor& buffer, const Action& action);

  World& world_;
  std::vector<Tensor> bytes_;  // views of the tensors
  std::vector<int64_t> owners_;
  int64_t longest_ = 0;  // bytes of the rank that owns most
  Tensor part_;
  Tensor whole_;
};

}  // namespace finetune
