// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "finetune/distributed/world.h"

namespace finetune {

// A run of leaves of the summation tree.
struct ShardRange {
  int64_t first = 0;
  int64_t count = 0;
  friend bool operator==(const ShardRange&, const ShardRange&) = default;
};

// The sum of an update's logical shards (its micro-batches), each with its own gradients, in an
// order that depends on their number alone: so it has the same bits whichever processes computed
// which of them. The tree over n leaves: the largest power of two below n on the left.
//
// A process takes a run of neighbouring shards and adds them in order; it keeps the gradients of as
// few complete subtrees as its run has, log2 of their number at most.
class ShardSum {
 public:
  // Of `shards` in this update the processes have `shares`, in the order of ranks, without gaps.
  ShardSum(World& world, int64_t shards, std::vector<ShardRange> shares);

  // The gradients of this process's next shard; they are taken over. Each time the same shapes.
  void add(std::vector<Tensor> gradients);
  // Puts the sum of all shards into these, in all processes. Requires: this process has added all
  // of its share; the same shapes everywhere.
  void finish(const std::vector<Tensor>& into, int64_t bucket_bytes);

  // The complete subtrees that a run of leaves consists of, in order.
  [[nodiscard]] static std::vector<ShardRange> subtrees(const ShardRange& run);

 private:
  struct Node {
    ShardRange range;
    std::vector<Tensor> gradients;
  };

  World& world_;
  int64_t shards_;
  std::vector<ShardRange> shares_;
  int64_t next_ = 0;
  std::vector<Node> nodes_;
};

}  // namespace finetune
