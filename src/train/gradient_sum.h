// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "train/training_run.h"
#include "train/update.h"

namespace finetune {

// The backward pass of one micro-batch: adds its gradients to the parameter store and returns its
// share of the update's loss. Where that is not finite, no gradient was added.
using Backward = std::function<double(const Batch&)>;

// What an update summed up to, the same in all ranks.
struct Summed {
  double loss = 0.0;     // of the whole update
  bool stopped = false;  // a rank was asked to stop: the update is discarded
};

// Sums the gradients of an update's micro-batches, over all ranks, into the parameter store:
//   begin(); add() for the groups of micro-batches, until it returns false, or stop(); finish();
//   then the gradients are used, and clear() ends the update.
// All ranks call finish() in every update, whatever happened to their own micro-batches: the others
// wait for it.
class GradientSum {
 public:
  virtual ~GradientSum() = default;

  // How many micro-batches an add() takes.
  [[nodiscard]] virtual size_t at_once() const = 0;
  virtual void begin(const Update& update) = 0;
  // Requires: the update's next micro-batches. False: more of them are of no use, for the loss is
  // not finite or this rank is out of memory, which finish() throws in all ranks. Alone, an
  // exception of `backward` leaves at once.
  virtual bool add(std::span<const Batch> batches, const Backward& backward) = 0;
  // No more micro-batches: this rank was asked to stop.
  virtual void stop() = 0;
  // A collective. Throws an out-of-memory error on every rank if one rank ran out of memory.
  [[nodiscard]] virtual Summed finish() = 0;
  // Drops the gradients, and what an update that failed has left. Their memory is kept where the
  // next update needs it.
  virtual void clear() = 0;
};

// How gradients are summed; which one follows from keys, ranks and BatchSplit.
enum class SumKind {
  kAlone,    // one rank: micro-batches add to the store, one after the other
  kBuckets,  // several: buckets of gradients are summed concurrently with the last backward pass
  kShards,   // full_determinism: a tree over logical shards, whichever ranks computed them
};
[[nodiscard]] SumKind sum_kind(const TrainingRun& run);

// Reserves the memory that it keeps for the whole run. `run` must outlive it.
[[nodiscard]] std::unique_ptr<GradientSum> make_gradient_sum(TrainingRun& run);

}  // namespace finetune
