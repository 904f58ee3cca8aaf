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

// Collects sharded optimizer states (zero_stage: 1) for rank 0's checkpoint. The checkpoint's
// writer on rank 0 reads tensors of other ranks, some MiB at a time, while all ranks are in
// serve(), which sends the data from its owners. No rank has all states in memory.
class StateGather {
 public:
  // `owners`: the rank that owns each parameter's state, in the store's order.
  StateGather(World& world, const Optimizer& optimizer, std::vector<int64_t> owners);
  ~StateGather();
  StateGather(const StateGather&) = delete;
  StateGather& operator=(const StateGather&) = delete;

  // Returns the state tensors of a slot that another rank owns. They may be read only on rank 0, by
  // another thread, while serve() runs.
  [[nodiscard]] LazyTensors tensors(size_t slot);
  // Serves reads until `is_done` returns true on rank 0. A collective. Throws PeerLost.
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

// Returns a slot's state by name, from this rank or through `gather` from its owner. Requires:
// `gather` if another rank owns the slot.
[[nodiscard]] LazyTensors state_tensors(const Optimizer& optimizer, size_t slot, Snapshot* snapshot,
                                        StateGather* gather);

}  // namespace finetune
