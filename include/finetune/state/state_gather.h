// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "finetune/distributed/world.h"
#include "finetune/optim/optimizer.h"
#include "finetune/tensor/lazy_tensor.h"
#include "finetune/tensor/snapshot.h"

namespace finetune {

// Brings sharded optimizer states (zero_stage: 1) into rank 0's checkpoint: its writer reads
// tensors of other ranks, some MiB at a time, while all ranks are in serve(), which sends them from
// their owners. No rank has all states in memory.
class StateGather {
 public:
  // `owners`: of each parameter's state, in the store's order.
  StateGather(World& world, const Optimizer& optimizer, std::vector<int64_t> owners);
  ~StateGather();
  StateGather(const StateGather&) = delete;
  StateGather& operator=(const StateGather&) = delete;

  // Of a slot that is elsewhere: its state's tensors, to be read by a thread of rank 0's while
  // serve() runs.
  [[nodiscard]] LazyTensors tensors(size_t slot);
  // A collective. Rank 0 returns when `is_done`, the others when it does. Throws PeerLost.
  void serve(const std::function<bool()>& is_done);

 private:
  struct Request;
  struct Desk;
  [[nodiscard]] Tensor ask(const Request& request);
  [[nodiscard]] Tensor bring(const Request& request);
  void serve_as_first(const std::function<bool()>& is_done);

  World& world_;
  const Optimizer& optimizer_;
  std::vector<int64_t> owners_;
  std::unique_ptr<Desk> desk_;
};

// A slot's state by its names: as it lies here, or as its owner has it. Requires: a `gather` where
// it is elsewhere.
[[nodiscard]] LazyTensors state_tensors(const Optimizer& optimizer, size_t slot, Snapshot* snapshot,
                                        StateGather* gather);

}  // namespace finetune
