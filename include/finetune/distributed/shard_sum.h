// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "finetune/distributed/world.h"

namespace finetune {

// A range of leaves of the summation tree.
struct ShardRange {
  int64_t first = 0;
  int64_t count = 0;
  friend bool operator==(const ShardRange&, const ShardRange&) = default;
};

// Sums an update's logical shards (micro-batches), each with its own gradients, in an order that
// depends only on their number, so the bits do not depend on which rank computed which shard. In a
// tree over n leaves, the left subtree has the largest power of two below n.
//
// A rank takes a range of consecutive shards and adds them in order; it keeps the gradients of as
// few complete subtrees as possible, at most log2 of the number of its shards.
class ShardSum {
 public:
  // `shares`: the ranges of this update's `shards` that the ranks compute, in rank order, without
  // gaps.
  ShardSum(World& world, int64_t shards, std::vector<ShardRange> shares);

  // Takes over the gradients of this rank's next shard. Requires: the same shapes each time.
  void add(std::vector<Tensor> gradients);
  // Stores the sum of all shards in `into` on every rank. Requires: this rank has added all shards
  // of its share; the same shapes on every rank.
  void finish(const std::vector<Tensor>& into, int64_t bucket_bytes);

  // Returns the complete subtrees that make up a range of leaves, in order.
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

// Sums what complete subtrees of `shards` shards have, given in order, in the order of ShardSum.
[[nodiscard]] std::vector<Tensor> sum_of_tree(const std::vector<ShardRange>& subtrees,
                                              std::vector<std::vector<Tensor>> values,
                                              int64_t shards);

}  // namespace finetune
