// SPDX-License-Identifier: MIT
#include "finetune/distributed/shard_sum.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "finetune/base/error.h"

namespace finetune {
namespace {

// Calls `action` with ranges of tensors, each with one tensor or with several below the size limit.
template <class Action>
void in_buckets(const std::vector<Tensor>& tensors, int64_t bucket_bytes, const Action& action) {
  const auto most = std::max<int64_t>(1, bucket_bytes / 4);
  for (size_t begin = 0; begin < tensors.size();) {
    int64_t values = tensors[begin].numel();
    size_t end = begin + 1;
    while (end < tensors.size() && values + tensors[end].numel() <= most) {
      values += tensors[end++].numel();
    }
    action(begin, end, values);
    begin = end;
  }
}

// Copies the tensors to a flat float32 tensor.
void flatten(const std::vector<Tensor>& tensors, size_t begin, size_t end, const Tensor& flat) {
  int64_t at = 0;
  for (size_t i = begin; i < end; ++i) {
    flat.narrow(0, at, tensors[i].numel()).view_as(tensors[i]).copy_(tensors[i]);
    at += tensors[i].numel();
  }
}

void unflatten(const Tensor& flat, const std::vector<Tensor>& tensors, size_t begin, size_t end) {
  int64_t at = 0;
  for (size_t i = begin; i < end; ++i) {
    tensors[i].copy_(flat.narrow(0, at, tensors[i].numel()).view_as(tensors[i]));
    at += tensors[i].numel();
  }
}

int64_t power_of_two_below(int64_t count) {
  int64_t power = 1;
  while (power * 2 < count) power *= 2;
  return power;
}

// Sums the values of the ranks' subtrees, given in order, in the order of the complete tree.
class TreeSum {
 public:
  using Values = std::vector<Tensor>;

  TreeSum(const std::vector<ShardRange>& ranges, std::vector<Values> values)
      : ranges_(ranges), values_(std::move(values)) {}

  // Sums a range into its first tensors.
  const Values& over(const ShardRange& range) {
    const auto found = std::ranges::find(ranges_, range);
    if (found != ranges_.end()) return values_[static_cast<size_t>(found - ranges_.begin())];
    FT_CHECK(range.count > 1, "every shard belongs to a process");
    const int64_t left = power_of_two_below(range.count);
    const Values& sum = over({.first = range.first, .count = left});
    const Values& right = over({.first = range.first + left, .count = range.count - left});
    for (size_t i = 0; i < sum.size(); ++i) sum[i].add_(right[i]);
    return sum;
  }

 private:
  const std::vector<ShardRange>& ranges_;
  std::vector<Values> values_;
};

}  // namespace

std::vector<Tensor> sum_of_tree(const std::vector<ShardRange>& subtrees,
                                std::vector<std::vector<Tensor>> values, int64_t shards) {
  return TreeSum(subtrees, std::move(values)).over({.first = 0, .count = shards});
}

std::vector<ShardRange> ShardSum::subtrees(const ShardRange& run) {
  std::vector<ShardRange> result;
  const int64_t end = run.first + run.count;
  for (int64_t at = run.first; at < end;) {
    int64_t size = 1;
    while (at % (size * 2) == 0 && at + size * 2 <= end) size *= 2;
    result.push_back({.first = at, .count = size});
    at += size;
  }
  return result;
}

ShardSum::ShardSum(World& world, int64_t shards, std::vector<ShardRange> shares)
    : world_(world), shards_(shards), shares_(std::move(shares)) {
  FT_CHECK(static_cast<int64_t>(shares_.size()) == world.size(), "a share for each process");
  next_ = shares_[static_cast<size_t>(world.rank())].first;
}

void ShardSum::add(std::vector<Tensor> gradients) {
  nodes_.push_back({.range = {.first = next_++, .count = 1}, .gradients = std::move(gradients)});
  // Merges subtrees like a binary counter carries.
  while (nodes_.size() > 1) {
    Node& left = nodes_[nodes_.size() - 2];
    const Node& right = nodes_.back();
    if (left.range.count != right.range.count) break;
    if (left.range.first % (2 * left.range.count) != 0) break;
    for (size_t i = 0; i < left.gradients.size(); ++i) left.gradients[i].add_(right.gradients[i]);
    left.range.count *= 2;
    nodes_.pop_back();
  }
}

void ShardSum::finish(const std::vector<Tensor>& into, int64_t bucket_bytes) {
  const ShardRange& mine = shares_[static_cast<size_t>(world_.rank())];
  FT_CHECK(next_ == mine.first + mine.count, "every shard of this process was added");
  if (shards_ == 0) return;
  const ShardRange all{.first = 0, .count = shards_};
  std::vector<ShardRange> ranges;
  std::vector<int64_t> nodes_of;  // by rank
  for (const ShardRange& share : shares_) {
    const std::vector<ShardRange> of_share = subtrees(share);
    nodes_of.push_back(static_cast<int64_t>(of_share.size()));
    ranges.insert(ranges.end(), of_share.begin(), of_share.end());
  }
  if (world_.size() == 1) {
    std::vector<std::vector<Tensor>> values;
    for (const Node& node : nodes_) values.push_back(node.gradients);
    TreeSum tree(ranges, std::move(values));
    const std::vector<Tensor>& sum = tree.over(all);
    for (size_t i = 0; i < into.size(); ++i) into[i].copy_(sum[i]);
    nodes_.clear();
    return;
  }
  // Each rank sums a segment of every bucket, on the device if the world reaches it: adding two
  // numbers has the same bits there.
  const c10::Device device = into[0].device();
  const auto floats =
      at::TensorOptions().device(world_.reaches(device) ? device : c10::kCPU).dtype(at::kFloat);
  in_buckets(into, bucket_bytes, [&](size_t begin, size_t end, int64_t values) {
    const int64_t processes = world_.size();
    const int64_t segment = (values + processes - 1) / processes;
    const auto mine_count = static_cast<int64_t>(nodes_.size());
    const Tensor input = at::zeros({processes, mine_count, segment}, floats);
    const Tensor flat = at::zeros({processes * segment}, floats);
    for (int64_t node = 0; node < mine_count; ++node) {
      flatten(nodes_[static_cast<size_t>(node)].gradients, begin, end, flat);
      input.select(1, node).copy_(flat.view({processes, segment}));
    }
    const Tensor output = at::empty({static_cast<int64_t>(ranges.size()), segment}, floats);
    std::vector<int64_t> output_sizes;
    for (const int64_t count : nodes_of) output_sizes.push_back(count * segment);
    world_.all_to_all(output.view({-1}), input.view({-1}), output_sizes,
                      std::vector<int64_t>(static_cast<size_t>(processes), mine_count * segment));
    std::vector<std::vector<Tensor>> parts;
    for (int64_t node = 0; node < output.size(0); ++node) parts.push_back({output[node]});
    TreeSum sum(ranges, std::move(parts));
    world_.all_gather(flat, sum.over(all)[0]);
    unflatten(flat, into, begin, end);
  });
  nodes_.clear();
}

}  // namespace finetune
