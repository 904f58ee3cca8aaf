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

// Collects optimizer states and weights that ranks divide among them for what rank 0 writes. Its
// writer reads tensors of other ranks, some MiB at a time, while all ranks are in serve() or
// lead(), which sends the data from its owners. No rank has all of them in memory.
class StateGather {
 public:
  // `owners`: the rank that owns each parameter's state, in the store's order (zero_stage: 1);
  // empty: each rank has a part of the divided parameters and of their states.
  StateGather(World& world, const Optimizer& optimizer, std::vector<int64_t> owners = {});
  ~StateGather();
  StateGather(const StateGather&) = delete;
  StateGather& operator=(const StateGather&) = delete;

  // Returns the state tensors of a slot that another rank owns, or that ranks divide. They may be
  // read only on rank 0, by another thread while serve() runs, or within lead().
  [[nodiscard]] LazyTensors tensors(size_t slot);
  // The same of what stores a divided parameter's values.
  [[nodiscard]] LazyTensor weight(const Parameter& parameter);
  [[nodiscard]] LazyTensor correction(const Parameter& parameter);
  // Serves reads until `is_done` returns true on rank 0. A collective. Throws PeerLost.
  void serve(const std::function<bool()>& is_done);
  // Runs `write` on rank 0, in the calling thread; the others serve its reads. A collective. Throws
  // what `write` throws.
  void lead(const std::function<void()>& write);

 private:
  struct Request;
  struct Desk;
  [[nodiscard]] LazyTensor stored(const Parameter& parameter, int64_t what, const Tensor& part);
  // Rows of a tensor whose values the ranks have from `begins` on, flattened.
  [[nodiscard]] LazyTensor divided(const Request& where, std::string name, at::ScalarType type,
                                   std::vector<int64_t> shape, std::vector<int64_t> begins);
  [[nodiscard]] const Tensor& located(const Request& request) const;
  [[nodiscard]] Tensor bytes_of_rows(const Request& where, const std::vector<int64_t>& begins,
                                     int64_t first, int64_t count, int64_t element_size);
  [[nodiscard]] Tensor own_bytes(const Request& request) const;
  [[nodiscard]] Tensor ask(const Request& request);
  [[nodiscard]] Tensor bring(const Request& request);
  void follow();
  void serve_as_first(const std::function<bool()>& is_done);

  World& world_;
  const Optimizer& optimizer_;
  std::vector<int64_t> owners_;
  std::unique_ptr<Desk> desk_;
  bool leads_ = false;
};

// Returns a slot's state by name, from this rank or through `gather` from its owner. Requires:
// `gather` if another rank owns the slot.
[[nodiscard]] LazyTensors state_tensors(const Optimizer& optimizer, size_t slot, Snapshot* snapshot,
                                        StateGather* gather);

}  // namespace finetune
