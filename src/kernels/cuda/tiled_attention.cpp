// SPDX-License-Identifier: MIT
#include "kernels/cuda/tiled_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp2.h>
#include <ATen/ops/logaddexp2.h>
#include <ATen/ops/sigmoid.h>

#include <limits>
#include <numbers>

#include "kernels/cuda/operations.h"
#include "kernels/cuda/rows.h"

namespace finetune::kernels::cuda {
namespace {

int64_t samples_of(const Attention& inputs) {
  return inputs.layout == nullptr ? inputs.query.size(0) : inputs.layout->rows();
}

int64_t tiles_of(const Attention& inputs) {
  return (inputs.longest() + kAttentionTile - 1) / kAttentionTile;
}

Grid grid_of(const Attention& inputs, int64_t heads) {
  return {.x = tiles_of(inputs) * samples_of(inputs), .y = heads, .threads = kAttentionTileThreads};
}

int variant_of(const Attention& inputs) { return inputs.head_size() == 32 ? 0 : 1; }

// What all kernels read.
TiledAttentionArguments arguments_of(const Attention& inputs, Launch& launch) {
  return {.query = launch.reads(inputs.query),
          .key = launch.reads(inputs.key),
          .value = launch.reads(inputs.value),
          .context = nullptr,
          .log_sum_exp = nullptr,
          .deltas = nullptr,
          .gradient = nullptr,
          .of_query = nullptr,
          .of_key = nullptr,
          .of_value = nullptr,
          .mask = launch.reads<u8>(inputs.mask),
          .starts = inputs.layout == nullptr ? nullptr : launch.reads<i64>(inputs.layout->starts),
          .all_tokens = inputs.query.size(0) * inputs.query.size(1),
          .tokens = static_cast<int>(inputs.query.size(1)),
          .tiles = static_cast<int>(tiles_of(inputs)),
          .heads = static_cast<int>(inputs.heads),
          .key_heads = static_cast<int>(inputs.key_heads()),
          .scale = static_cast<float>(inputs.scale() * std::numbers::log2e),
          .gradient_scale = static_cast<float>(inputs.scale()),
          .is_causal = inputs.rule.causal,
          .window = static_cast<int>(inputs.rule.window),
          .dropout = dropout_arguments(inputs.dropout, inputs.longest(), nullptr, launch)};
}

Tensor of_each_query(const Attention& inputs) {
  return at::empty({inputs.heads, inputs.query.size(0) * inputs.query.size(1)},
                   inputs.query.options().dtype(at::kFloat));
}

// [heads, 1], in the unit of log_sum_exp, which is binary.
Tensor binary_sinks(const Attention& inputs) {
  return inputs.sinks.to(at::kFloat).unsqueeze(1) * std::numbers::log2e;
}

// Adds the sinks to a result without them: the denominator of each row grows, and its other
// probabilities shrink with it.
void add_sinks(const Attention& inputs, const Attended& result) {
  const Tensor sinks = binary_sinks(inputs);
  const Tensor shares =
      at::sigmoid((result.log_sum_exp - sinks) * std::numbers::ln2);  // [heads, N]
  result.context.view({-1, inputs.heads, inputs.head_size()}).mul_(shares.t().unsqueeze(-1));
  result.log_sum_exp.copy_(at::logaddexp2(result.log_sum_exp, sinks));
}

// `deltas`: of each row the sum of its probabilities times their gradients.
void write_gradient_of_sinks(const Attention& inputs, const Attended& forward,
                             const Tensor& deltas) {
  const Tensor of_rows = at::exp2(binary_sinks(inputs) - forward.log_sum_exp).mul_(deltas).neg_();
  inputs.of_sinks[0].copy_(of_rows.sum(1));  // of all samples
}

// Sizes of heads that the kernels are compiled for.
bool fits_tiles(int64_t head_size) { return head_size == 32 || head_size == 64; }

}  // namespace

bool has_tiles(const Attention& inputs) {
  const at::ScalarType type = inputs.query.scalar_type();
  const int64_t size = inputs.head_size();
  return (type == at::kBFloat16 || type == at::kHalf) && fits_tiles(size) &&
         inputs.rule.softcap == 0.0 && inputs.rule.scale >= 0.0 && inputs.has_one_type() &&
         inputs.query.numel() < std::numeric_limits<int32_t>::max() &&
         inputs.longest() <= 65536 &&  // rows of dropout's numbers (dropout.h)
         (inputs.layout == nullptr || inputs.layout->starts.defined()) &&
         is_aligned(size, {inputs.query, inputs.key, inputs.value}, 8);
}

Attended tiled_attention(const Attention& inputs) {
  const Attended result = {.context = at::empty_like(inputs.query),
                           .log_sum_exp = of_each_query(inputs)};
  Launch launch(inputs.query);
  TiledAttentionArguments arguments = arguments_of(inputs, launch);
  arguments.context = launch.writes(result.context);
  arguments.log_sum_exp = launch.writes<float>(result.log_sum_exp);
  launch.run<kernel::tiled_attention>(value_type_of(inputs.query), variant_of(inputs),
                                      grid_of(inputs, inputs.heads), arguments);
  if (inputs.sinks.defined()) add_sinks(inputs, result);
  return result;
}

AttendedGradients tiled_attention_backward(const Attention& inputs, const Attended& forward,
                                           const Tensor& gradient) {
  const ValueType type = value_type_of(inputs.query);
  const Tensor dy = is_aligned(inputs.head_size(), {gradient}, 8) ? gradient : gradient.clone();
  const Tensor of_query = at::empty_like(inputs.query);
  const Tensor deltas = of_each_query(inputs);
  Launch of_queries(inputs.query);
  TiledAttentionArguments arguments = arguments_of(inputs, of_queries);
  arguments.context = const_cast<void*>(of_queries.reads(forward.context));
  arguments.log_sum_exp = const_cast<float*>(of_queries.reads<float>(forward.log_sum_exp));
  arguments.gradient = of_queries.reads(dy);
  arguments.deltas = of_queries.writes<float>(deltas);
  arguments.of_query = of_queries.writes(of_query);
  of_queries.run<kernel::tiled_attention_of_queries>(type, variant_of(inputs),
                                                     grid_of(inputs, inputs.heads), arguments);
  Launch of_keys(inputs.query);
  arguments = arguments_of(inputs, of_keys);
  arguments.log_sum_exp = const_cast<float*>(of_keys.reads<float>(forward.log_sum_exp));
  arguments.gradient = of_keys.reads(dy);
  arguments.deltas = const_cast<float*>(of_keys.reads<float>(deltas));
  arguments.of_key = of_keys.writes(inputs.key);
  arguments.of_value = of_keys.writes(inputs.value);
  of_keys.run<kernel::tiled_attention_of_keys>(type, variant_of(inputs),
                                               grid_of(inputs, inputs.key_heads()), arguments);
  if (inputs.sinks.defined()) write_gradient_of_sinks(inputs, forward, deltas);
  return {.query = of_query, .key = inputs.key, .value = inputs.value};
}

}  // namespace finetune::kernels::cuda
