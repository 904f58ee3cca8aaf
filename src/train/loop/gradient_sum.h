// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "train/loop/update.h"
#include "train/session/training_run.h"

namespace finetune {

// The backward pass of one micro-batch: adds its gradients to the parameter store. `figures`: its
// part of the update's loss, then of each of Task::measures(). If the loss is not finite, no
// gradient was added.
using Backward = std::function<void(const Batch&, std::span<double> figures)>;

// The result of an update's sum, equal on all ranks.
struct Summed {
  double loss = 0.0;  // of the whole update
  std::vector<double> measures = {};
  bool stopped = false;  // a rank was asked to stop: the update is discarded
};

// Sums the gradients of an update's micro-batches, over all ranks, in the parameter store: begin();
// add() for each group of micro-batches until continues() or add() returns false; finish(); then
// the gradients are used, and clear() ends the update. All ranks must call finish() in every
// update, whatever happened to their own micro-batches, because the other ranks wait for it.
class GradientSum {
 public:
  virtual ~GradientSum() = default;

  // Number of micro-batches in a call of add().
  [[nodiscard]] virtual size_t at_once() const = 0;
  virtual void begin(const Update& update) = 0;
  // Number of calls of continues() and add().
  [[nodiscard]] virtual size_t rounds(const Update& update) const = 0;
  // Whether another round follows. `stops`: this rank was asked to stop, which ends the update
  // without the remaining micro-batches.
  [[nodiscard]] virtual bool continues(bool stops) = 0;
  // Requires: the next micro-batches of the update. Returns false if more micro-batches are
  // useless: the loss is not finite, or this rank is out of memory, which finish() throws on all
  // ranks. With one rank an exception of `backward` is thrown at once.
  virtual bool add(std::span<const Batch> batches, const Backward& backward) = 0;
  // Ends the update without the remaining micro-batches: this rank was asked to stop.
  virtual void stop() = 0;
  // A collective. Throws an out-of-memory error on every rank if one rank ran out of memory.
  [[nodiscard]] virtual Summed finish() = 0;
  // Drops the gradients and what a failed update left. Keeps memory that the next update needs.
  virtual void clear() = 0;
};

// How gradients are summed; decided by keys, number of ranks and BatchSplit.
enum class SumKind {
  kAlone,    // one rank: micro-batches add to the store one after the other
  kBuckets,  // several: buckets are summed concurrently with the last backward pass
  kShards,   // full_determinism: a tree over logical shards, whichever rank computed them
  kDivided,  // zero_stage 2 and 3: each rank sums the gradients of the values that it keeps
};
[[nodiscard]] SumKind sum_kind(const TrainingRun& run);

// Reserves the memory that the sum needs for the whole run. `run` must outlive it.
[[nodiscard]] std::unique_ptr<GradientSum> make_gradient_sum(TrainingRun& run);

}  // namespace finetune
