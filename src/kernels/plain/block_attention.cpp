// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "kernels/plain/operations.h"
#include "kernels/plain/philox.h"

// B samples, H heads, N blocks of S tokens, D head size; R blocks of queries that attend to L
// blocks of keys each.
namespace finetune::kernels::plain {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Blocked {
  const BlockAttention& inputs;
  int64_t samples, tokens, heads, blocks, size;

  explicit Blocked(const BlockAttention& attention)
      : inputs(attention),
        samples(attention.query.size(0)),
        tokens(attention.query.size(1)),
        heads(attention.pattern.heads),
        blocks(attention.pattern.blocks),
        size(attention.pattern.block_size) {}

  [[nodiscard]] int64_t padding() const { return blocks * size - tokens; }
  // [B, T, C] -> [B, H, N, S, D] in the compute type
  [[nodiscard]] Tensor split(const Tensor& x) const {
    return at::constant_pad_nd(x.to(compute_type(x)), {0, 0, 0, padding()})
        .view({samples, blocks, size, heads, -1})
        .permute({0, 3, 1, 2, 4})
        .contiguous();
  }
  void join(const Tensor& x, const Tensor& target) const {
    target.copy_(x.permute({0, 2, 3, 1, 4}).flatten(3).flatten(1, 2).narrow(1, 0, tokens));
  }
  [[nodiscard]] Tensor split_rows(const Tensor& x) const {  // [B, H, T] -> [B, H, N, S]
    return at::constant_pad_nd(x, {0, padding()}, kInfinity).view({samples, heads, blocks, size});
  }
  [[nodiscard]] Tensor split_mask() const {  // [B, N, S]
    const Tensor mask = inputs.mask.defined()
                            ? inputs.mask.view({samples, tokens})
                            : at::ones({samples, tokens}, inputs.query.options().dtype(at::kBool));
    return at::constant_pad_nd(mask, {0, padding()}).view({samples, blocks, size});
  }
};

// Blocks of queries that attend to the same number of blocks of keys.
struct Rows {
  Tensor queries;  // [R] int64
  Tensor keys;     // [H, R, L] int64, into all heads' blocks: h * N + block
  int64_t seen;    // L

  // [B, H, N, ...] -> [B, H, R, L * S, ...]
  [[nodiscard]] Tensor gather(const Tensor& x) const {
    return x.flatten(1, 2)
        .index_select(1, keys.flatten())
        .unflatten(1, {keys.size(0), keys.size(1), seen})
        .flatten(3, 4);
  }
};

template <typename Function>
void by_rows(const Blocked& blocked, const Function& function) {
  const BlockPattern& pattern = blocked.inputs.pattern;
  std::map<int64_t, std::vector<int64_t>> by_length;
  for (int64_t row = 0; row < blocked.blocks; ++row) {
    by_length[static_cast<int64_t>(pattern.keys.of(0, row).size())].push_back(row);
  }
  for (const auto& [seen, all] : by_length) {
    const int64_t scores =
        blocked.samples * blocked.heads * blocked.size * blocked.size * std::max<int64_t>(1, seen);
    const auto at_once = static_cast<size_t>(std::max<int64_t>(1, kScoresAtOnce / scores));
    for (size_t first = 0; first < all.size(); first += at_once) {
      const size_t count = std::min(at_once, all.size() - first);
      const std::vector<int64_t> rows(all.begin() + static_cast<int64_t>(first),
                                      all.begin() + static_cast<int64_t>(first + count));
      std::vector<int64_t> keys;
      for (int64_t head = 0; head < blocked.heads; ++head) {
        for (const int64_t row : rows) {
          for (const int32_t key : pattern.keys.of(head, row)) {
            keys.push_back(head * blocked.blocks + key);
          }
        }
      }
      const auto options = at::TensorOptions(at::kLong);
      const c10::Device device = blocked.inputs.query.device();
      function(Rows{.queries = at::tensor(rows, options).to(device),
                    .keys = at::tensor(keys, options)
                                .to(device)
                                .view({blocked.heads, static_cast<int64_t>(count), seen}),
                    .seen = seen});
    }
  }
}

// [B, H, R, S, L * S] of 0 and 1 / (1 - p): the values of dropout_mask() at these positions.
Tensor dropout_factors(const Blocked& blocked, const Rows& rows, at::ScalarType type) {
  const DropoutNumbers& numbers = *blocked.inputs.dropout;
  const int64_t size = blocked.size;
  const auto options = rows.keys.options();
  // Philox makes four numbers at once; they serve four keys if blocks begin at multiples of four.
  const int64_t step = size % 4 == 0 ? 4 : 1;
  const Tensor inside = at::arange(0, size, options);
  const Tensor keys =
      ((rows.keys % blocked.blocks * size).unsqueeze(-1) + at::arange(0, size, step, options))
          .flatten(2);                                                  // [H, R, L * S / step]
  const Tensor queries = (rows.queries * size).unsqueeze(-1) + inside;  // [R, S]
  const Tensor heads = at::arange(blocked.heads, options).view({-1, 1, 1});
  const Tensor positions =
      at::arange(blocked.samples, options) + static_cast<int64_t>(numbers.first_position);
  const std::vector<int64_t> shape = {blocked.samples, blocked.heads, rows.queries.size(0), size,
                                      keys.size(-1)};
  const Tensor key = keys.view({1, blocked.heads, -1, 1, keys.size(-1)});
  std::array<Tensor, 4> c = {
      key.floor_divide(4).expand(shape),
      (heads * 65536 + queries).view({1, blocked.heads, -1, size, 1}).expand(shape),
      positions.view({-1, 1, 1, 1, 1}).expand(shape),
      at::full({1, 1, 1, 1, 1}, static_cast<int64_t>(numbers.layer_and_site), options)
          .expand(shape)};
  c = philox_by_tensor_operations(c, numbers.key[0] | uint64_t{numbers.key[1]} << 32);
  Tensor words = at::stack({c[0], c[1], c[2], c[3]}, -1);
  words = step == 4 ? words.flatten(-2)
                    : words.gather(-1, key.remainder(4).expand(shape).unsqueeze(-1)).squeeze(-1);
  return words.ge(static_cast<int64_t>(numbers.threshold())).to(type) *
         static_cast<double>(numbers.scale());
}

struct Gathered {
  Tensor query, key, value;  // [B, H, R, S or L * S, D]
  Tensor scores;             // [B, H, R, S, L * S]
  Tensor factors;            // same shape; undefined without dropout
  Tensor zero_rows;          // [B, H, R, S] bool, true where all keys are masked

  [[nodiscard]] Tensor dropped(const Tensor& x) const {
    return factors.defined() ? x * factors : x;
  }
};

struct Split {
  Tensor query, key, value;  // [B, H, N, S, D]
  Tensor mask;               // [B, N, S]
};

Gathered gather(const Blocked& blocked, const Split& split, const Rows& rows) {
  Gathered gathered = {.query = split.query.index_select(2, rows.queries),
                       .key = rows.gather(split.key),
                       .value = rows.gather(split.value),
                       .scores = {},
                       .factors = {},
                       .zero_rows = {}};
  const Tensor of_keys =
      rows.gather(split.mask.unsqueeze(1).expand({-1, blocked.heads, -1, -1}).contiguous());
  const Tensor of_queries = split.mask.index_select(1, rows.queries).unsqueeze(1);
  gathered.zero_rows = of_keys.any(-1, true).logical_and(of_queries).logical_not();
  gathered.scores =
      (gathered.query.matmul(gathered.key.transpose(-1, -2)) * score_scale(gathered.query))
          .masked_fill(of_keys.unsqueeze(3).logical_not(), -kInfinity);
  if (blocked.inputs.dropout) {
    gathered.factors = dropout_factors(blocked, rows, gathered.scores.scalar_type());
  }
  return gathered;
}

Split split_inputs(const Blocked& blocked) {
  return {.query = blocked.split(blocked.inputs.query),
          .key = blocked.split(blocked.inputs.key),
          .value = blocked.split(blocked.inputs.value),
          .mask = blocked.split_mask()};
}

// target [B, H, N, S, D] += x [B, H, R, L * S, D] at the blocks of keys. Unlike index_add_, this
// adds in one order on every device.
void scatter(const Tensor& target, const Rows& rows, const Tensor& x) {
  const Tensor flat = target.flatten(1, 2).transpose(0, 1);  // [H * N, B, S, D]
  const Tensor values = x.unflatten(3, {rows.seen, -1})      // [B, H, R, L, S, D]
                            .flatten(1, 3)
                            .transpose(0, 1);
  flat.index_put_({rows.keys.flatten()}, values, true);
}

}  // namespace

BlockContext block_attention(const BlockAttention& inputs) {
  const Blocked blocked(inputs);
  const Split split = split_inputs(blocked);
  const Tensor context = at::empty_like(split.query);
  const Tensor log_sum_exp =
      at::empty({blocked.samples, blocked.heads, blocked.blocks, blocked.size}, context.options());
  by_rows(blocked, [&](const Rows& rows) {
    const Gathered gathered = gather(blocked, split, rows);
    const Tensor sums = gathered.scores.logsumexp(-1).masked_fill(gathered.zero_rows, kInfinity);
    const Tensor probabilities = (gathered.scores - sums.unsqueeze(-1)).exp();
    context.index_copy_(2, rows.queries, gathered.dropped(probabilities).matmul(gathered.value));
    log_sum_exp.index_copy_(2, rows.queries, sums);
  });
  const BlockContext result = {
      .context = at::empty_like(inputs.query),
      .log_sum_exp = log_sum_exp.flatten(2).narrow(2, 0, blocked.tokens).contiguous()};
  blocked.join(context, result.context);
  return result;
}

void block_attention_backward(const BlockAttention& inputs, const BlockContext& forward,
                              const Tensor& gradient) {
  const Blocked blocked(inputs);
  const Split split = split_inputs(blocked);
  const Tensor of_context = blocked.split(gradient);
  const Tensor log_sum_exp = blocked.split_rows(forward.log_sum_exp);
  const Tensor dots = (of_context * blocked.split(forward.context)).sum(-1, true);
  const Tensor of_query = at::empty_like(split.query);
  const Tensor of_key = at::zeros_like(split.key);
  const Tensor of_value = at::zeros_like(split.value);
  by_rows(blocked, [&](const Rows& rows) {
    const Gathered gathered = gather(blocked, split, rows);
    const Tensor of_rows = of_context.index_select(2, rows.queries);
    const Tensor probabilities =
        (gathered.scores - log_sum_exp.index_select(2, rows.queries).unsqueeze(-1)).exp();
    const Tensor of_probabilities =
        gathered.dropped(of_rows.matmul(gathered.value.transpose(-1, -2)));
    const Tensor of_scores = probabilities *
                             (of_probabilities - dots.index_select(2, rows.queries)) *
                             score_scale(gathered.query);
    of_query.index_copy_(2, rows.queries, of_scores.matmul(gathered.key));
    scatter(of_key, rows, of_scores.transpose(-1, -2).matmul(gathered.query));
    scatter(of_value, rows, gathered.dropped(probabilities).transpose(-1, -2).matmul(of_rows));
  });
  blocked.join(of_query, inputs.query);
  blocked.join(of_key, inputs.key);
  blocked.join(of_value, inputs.value);
}

}  // namespace finetune::kernels::plain
