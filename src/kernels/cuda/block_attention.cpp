// SPDX-License-Identifier: MIT
// Block-sparse attention as products of cuBLAS over gathered blocks, around one kernel for the rows
// of scores. B samples, H heads, N blocks of S tokens, D head size; R blocks of queries that see L
// blocks of keys each.
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "kernels/cuda/operations.h"
#include "kernels/cuda/rows.h"
#include "kernels/interface/attention_core.h"

namespace finetune::kernels::cuda {
namespace {

constexpr int64_t kBlockScoreBytes = int64_t{64}
                                     << 20;  // of scores, and of gathered keys, at a time

struct BlockSizes {
  explicit BlockSizes(const BlockAttention& inputs)
      : samples(inputs.query.size(0)),
        tokens(inputs.query.size(1)),
        heads(inputs.pattern.heads),
        blocks(inputs.pattern.blocks),
        size(inputs.pattern.block_size),
        width(inputs.query.size(2) / inputs.pattern.heads) {}
  int64_t samples, tokens, heads, blocks, size, width;

  [[nodiscard]] int64_t longest(const BlockAttention& inputs) const {
    int64_t seen = 0;
    for (int64_t block = 0; block < blocks; ++block) {
      seen = std::max(seen, std::ssize(inputs.pattern.keys.of(0, block)));
    }
    return seen * size;
  }
  [[nodiscard]] double scale() const { return 1.0 / std::sqrt(static_cast<double>(width)); }
};

bool has_block_kernel(const BlockAttention& inputs) {
  const BlockSizes sizes(inputs);
  const at::ScalarType type = inputs.query.scalar_type();
  return sizes.size % 4 == 0 && sizes.longest(inputs) <= kLongestAttention &&
         inputs.query.numel() > 0 && inputs.key.scalar_type() == type &&
         inputs.value.scalar_type() == type;
}

// [B, T, C] to and from [B, H, N * S, D], zeros after the end of a sample.
void move_blocks(const BlockSizes& sizes, bool to_heads, const Tensor& tokens,
                 const Tensor& by_head) {
  Launch launch(tokens);
  void* const source = const_cast<void*>(launch.reads(to_heads ? tokens : by_head));
  void* const target = launch.writes(to_heads ? by_head : tokens);
  HeadsArguments arguments = {.starts = nullptr,
                              .first_token = 0,
                              .tokens = static_cast<int>(sizes.tokens),
                              .length = static_cast<int>(sizes.blocks * sizes.size),
                              .size = static_cast<int>(sizes.width),
                              .is_aligned = is_aligned(sizes.width, {tokens, by_head})};
  arguments.parts[0] = {.tokens = to_heads ? source : target,
                        .by_head = to_heads ? target : source,
                        .heads = static_cast<int>(sizes.heads)};
  launch.run<kernel::heads>(value_type_of(tokens), to_heads ? 0 : 1,
                            {.x = sizes.samples * sizes.blocks * sizes.size,
                             .threads = threads_for(sizes.heads * sizes.width)},
                            arguments);
}

// Some blocks of queries, which see the same number of blocks of keys.
class BlockGroup {
 public:
  BlockGroup(const BlockAttention& inputs, std::span<const int64_t> queries, int64_t seen)
      : inputs_(inputs), sizes_(inputs), count_(std::ssize(queries)), seen_(seen) {
    // One copy for both, that nothing waits for.
    std::vector<i64> indices(queries.begin(), queries.end());
    for (int64_t head = 0; head < sizes_.heads; ++head) {
      for (const int64_t query : queries) {
        for (const int32_t key : inputs.pattern.keys.of(head, query)) {
          indices.push_back(head * sizes_.blocks + key);
        }
      }
    }
    const Tensor all = on_device(indices, inputs.query).view(at::kLong);
    queries_ = all.narrow(0, 0, count_);
    keys_ = all.narrow(0, count_, all.numel() - count_);
  }

  // Of [B, H, N * S, D]: [B * H * R, S, D]
  [[nodiscard]] Tensor queries_of(const Tensor& x) const {
    return blocks_of(x).index_select(2, queries_).view({-1, sizes_.size, sizes_.width});
  }
  // [B * H * R, L * S, D]
  [[nodiscard]] Tensor keys_of(const Tensor& x) const {
    return blocks_of(x).flatten(1, 2).index_select(1, keys_).view({-1, columns(), sizes_.width});
  }
  void set_queries(const Tensor& target, const Tensor& x) const {
    blocks_of(target).index_copy_(
        2, queries_, x.view({sizes_.samples, sizes_.heads, count_, sizes_.size, sizes_.width}));
  }
  // += for float32 [B, H, N * S, D], in one order.
  void add_keys(const Tensor& target, const Tensor& x) const {
    const Tensor blocks = blocks_of(target).flatten(1, 2).transpose(0, 1);
    const Tensor values = x.view({sizes_.samples, keys_.numel(), sizes_.size, sizes_.width});
    blocks.index_put_({keys_}, values.to(at::kFloat).transpose(0, 1), /*accumulate=*/true);
  }
  [[nodiscard]] Tensor empty_scores() const {
    return at::empty({sizes_.samples * sizes_.heads * count_, sizes_.size, columns()},
                     inputs_.query.options());
  }

  void softmax(const Tensor& scores, const Tensor& probabilities, const Tensor& dropped) const {
    Launch launch(scores);
    const BlockRowsArguments arguments = {.shape = shape(launch),
                                          .scores = launch.reads(scores),
                                          .probabilities = launch.writes(probabilities),
                                          .dropped = launch.writes(dropped),
                                          .mask = launch.reads<u8>(inputs_.mask),
                                          .tokens = sizes_.tokens,
                                          .dropout = dropout(launch)};
    launch.run<kernel::block_rows>(value_type_of(scores), variant(), grid(), arguments);
  }
  void softmax_backward(const Tensor& probabilities, const Tensor& gradient) const {
    Launch launch(gradient);
    const BlockRowsBackwardArguments arguments = {.shape = shape(launch),
                                                  .probabilities = launch.reads(probabilities),
                                                  .gradient = launch.changes(gradient),
                                                  .dropout = dropout(launch)};
    launch.run<kernel::block_rows_backward>(value_type_of(gradient), variant(), grid(), arguments);
  }

 private:
  [[nodiscard]] int64_t columns() const { return seen_ * sizes_.size; }
  [[nodiscard]] int64_t rows() const {
    return sizes_.samples * sizes_.heads * count_ * sizes_.size;
  }
  [[nodiscard]] Tensor blocks_of(const Tensor& x) const {
    return x.view({sizes_.samples, sizes_.heads, sizes_.blocks, sizes_.size, sizes_.width});
  }
  [[nodiscard]] BlockRowsShape shape(Launch& launch) const {
    return {.queries = launch.reads<i64>(queries_),
            .keys = launch.reads<i64>(keys_),
            .rows = rows(),
            .blocks = sizes_.blocks,
            .block_size = static_cast<int>(sizes_.size),
            .heads = static_cast<int>(sizes_.heads),
            .query_blocks = static_cast<int>(count_),
            .seen = static_cast<int>(seen_)};
  }
  [[nodiscard]] DropoutArguments dropout(Launch& launch) const {
    return dropout_arguments(inputs_.dropout, sizes_.tokens, nullptr, launch);
  }
  // Of device/block_rows.cu: up to 512, 1,024 and 8,192 columns.
  [[nodiscard]] int variant() const {
    if (columns() <= 16 * kWarp) return 0;
    return columns() <= 32 * kWarp ? 1 : 2;
  }
  [[nodiscard]] Grid grid() const {
    constexpr int64_t kRowsOfBlock = kThreads / kWarp;
    return {.x = variant() == 2 ? rows() : (rows() + kRowsOfBlock - 1) / kRowsOfBlock};
  }

  const BlockAttention& inputs_;
  BlockSizes sizes_;
  int64_t count_, seen_;
  Tensor queries_, keys_;  // [R], [H * R * L]
};

template <typename Function>
void for_block_groups(const BlockAttention& inputs, const Function& function) {
  const BlockSizes sizes(inputs);
  std::map<int64_t, std::vector<int64_t>> by_length;
  for (int64_t block = 0; block < sizes.blocks; ++block) {
    by_length[std::ssize(inputs.pattern.keys.of(0, block))].push_back(block);
  }
  const auto element = static_cast<int64_t>(inputs.query.element_size());
  for (const auto& [seen, queries] : by_length) {
    const int64_t bytes = sizes.samples * sizes.heads * seen * sizes.size *
                          std::max(sizes.size, sizes.width) * element;
    const int64_t most = std::max<int64_t>(1, kBlockScoreBytes / std::max<int64_t>(1, bytes));
    std::span<const int64_t> rest = queries;
    while (!rest.empty()) {
      const size_t count = std::min(rest.size(), static_cast<size_t>(most));
      function(BlockGroup(inputs, rest.first(count), seen));
      rest = rest.subspan(count);
    }
  }
}

Tensor with_heads(const BlockSizes& sizes, const Tensor& tokens) {
  const Tensor by_head = at::empty(
      {sizes.samples, sizes.heads, sizes.blocks * sizes.size, sizes.width}, tokens.options());
  move_blocks(sizes, /*to_heads=*/true, tokens, by_head);
  return by_head;
}

Tensor turned_blocks(const Tensor& x) { return x.transpose(1, 2); }

}  // namespace

// The backward pass makes the probabilities again, without the forward pass's sums.
BlockContext block_attention(const BlockAttention& inputs) {
  if (!has_block_kernel(inputs)) return plain::block_attention(inputs);
  const BlockSizes sizes(inputs);
  const Tensor query = with_heads(sizes, inputs.query);
  const Tensor key = with_heads(sizes, inputs.key);
  const Tensor value = with_heads(sizes, inputs.value);
  const Tensor context = at::empty_like(query);
  for_block_groups(inputs, [&](const BlockGroup& group) {
    const Tensor scores = group.empty_scores();
    scores.baddbmm_(group.queries_of(query), turned_blocks(group.keys_of(key)), 0, sizes.scale());
    group.softmax(scores, {}, scores);
    group.set_queries(context, at::bmm(scores, group.keys_of(value)));
  });
  const BlockContext result = {
      .context = at::empty_like(inputs.query),
      .log_sum_exp = at::empty({0}, inputs.query.options().dtype(at::kFloat))};
  move_blocks(sizes, /*to_heads=*/false, result.context, context);
  return result;
}

void block_attention_backward(const BlockAttention& inputs, const BlockContext& forward,
                              const Tensor& gradient) {
  if (!has_block_kernel(inputs)) {
    plain::block_attention_backward(inputs, forward, gradient);
    return;
  }
  const BlockSizes sizes(inputs);
  const Tensor query = with_heads(sizes, inputs.query);
  const Tensor key = with_heads(sizes, inputs.key);
  const Tensor value = with_heads(sizes, inputs.value);
  const Tensor of_context = with_heads(sizes, gradient.contiguous());
  const Tensor of_query = at::empty_like(query);
  const Tensor of_key = at::zeros(key.sizes(), key.options().dtype(at::kFloat));
  const Tensor of_value = at::zeros(key.sizes(), key.options().dtype(at::kFloat));
  for_block_groups(inputs, [&](const BlockGroup& group) {
    const Tensor queries = group.queries_of(query);
    const Tensor keys = group.keys_of(key);
    const Tensor of_rows = group.queries_of(of_context);
    const Tensor probabilities = group.empty_scores();
    probabilities.baddbmm_(queries, turned_blocks(keys), 0, sizes.scale());
    const Tensor dropped = group.empty_scores();
    group.softmax(probabilities, probabilities, inputs.dropout ? dropped : Tensor());
    group.add_keys(of_value,
                   at::bmm(turned_blocks(inputs.dropout ? dropped : probabilities), of_rows));
    dropped.baddbmm_(of_rows, turned_blocks(group.keys_of(value)), 0, 1);
    group.softmax_backward(probabilities, dropped);
    group.set_queries(of_query, at::empty_like(queries).baddbmm_(dropped, keys, 0, sizes.scale()));
    group.add_keys(
        of_key, at::empty_like(keys).baddbmm_(turned_blocks(dropped), queries, 0, sizes.scale()));
  });
  move_blocks(sizes, false, inputs.query, of_query);
  move_blocks(sizes, false, inputs.key, of_key.to(key.scalar_type()));
  move_blocks(sizes, false, inputs.value, of_value.to(key.scalar_type()));
}

}  // namespace finetune::kernels::cuda
