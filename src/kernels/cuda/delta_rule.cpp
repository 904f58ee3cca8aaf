// SPDX-License-Identifier: MIT
#include "finetune/kernels/delta_rule.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "kernels/cuda/operations.h"
#include "kernels/cuda/rows.h"

namespace finetune::kernels::cuda {
namespace {

bool has_kernel(const DeltaRule& rule) {
  return rule.key_size <= kLongestState && rule.a_log.scalar_type() == at::kFloat &&
         rule.mixed.scalar_type() != at::kDouble && rule.rows() > 0;
}

// Of a layout; the layout of another device's kernels has none.
Tensor starts_of(const TokenRows& tokens, const Tensor& like) {
  if (tokens.layout == nullptr || tokens.layout->starts.defined()) {
    return tokens.layout == nullptr ? Tensor() : tokens.layout->starts;
  }
  return on_device(tokens.layout->offsets, like).view(at::kLong);
}

int state_variant_of(const DeltaRule& rule) {
  return rule.key_size <= 64 ? 0 : rule.key_size <= 128 ? 1 : 2;
}

int64_t column_blocks(const DeltaRule& rule) { return (rule.value_size() + kWarp - 1) / kWarp; }

// The tensors that a launch reads besides the rule's.
struct DeltaTensors {
  explicit DeltaTensors(const DeltaRule& rule)
      : starts(starts_of(rule.tokens, rule.mixed)),
        inverses(at::empty({rule.rows(), 2, rule.key_heads}, rule.a_log.options())),
        decay(at::empty({rule.rows(), rule.heads()}, rule.a_log.options())),
        beta(at::empty_like(decay)) {}

  Tensor starts, inverses, decay, beta;
};

DeltaRuleArguments arguments_of(const DeltaRule& rule, const DeltaTensors& tensors,
                                Launch& launch) {
  return {.mixed = launch.reads(rule.mixed),
          .a = launch.reads(rule.a),
          .b = launch.reads(rule.b),
          .a_log = launch.reads<float>(rule.a_log),
          .dt_bias = launch.reads<float>(rule.dt_bias),
          .decay = launch.changes<float>(tensors.decay),
          .beta = launch.changes<float>(tensors.beta),
          .starts = launch.reads<i64>(tensors.starts),
          .inverses = launch.changes<float>(tensors.inverses),
          .output = nullptr,
          .state = nullptr,
          .begins = nullptr,
          .rows = rule.rows(),
          .columns = rule.mixed.size(-1),
          .tokens = rule.tokens.tokens,
          .heads = rule.heads(),
          .key_heads = rule.key_heads,
          .value_size = rule.value_size(),
          .key_size = static_cast<int>(rule.key_size),
          .scale = 1.0F / std::sqrt(static_cast<float>(rule.key_size)),
          .epsilon = static_cast<float>(kDeltaEpsilon)};
}

void make_inverses(const DeltaRule& rule, const DeltaTensors& tensors) {
  Launch launch(rule.mixed);
  const DeltaRuleArguments arguments = arguments_of(rule, tensors, launch);
  const int64_t warps = kThreads / kWarp;
  launch.run<kernel::unit_rows>(value_type_of(rule.mixed), 0,
                                {.x = (rule.rows() * 2 * rule.key_heads + warps - 1) / warps},
                                arguments);
}

Grid blocks_of_states(const DeltaRule& rule) {
  return {.x = rule.sequences() * rule.heads(), .y = column_blocks(rule)};
}

// `output` or `begins` may be undefined.
void run_forward(const DeltaRule& rule, const DeltaTensors& tensors, const Tensor& output,
                 const Tensor& state, const Tensor& begins) {
  Launch launch(rule.mixed);
  DeltaRuleArguments arguments = arguments_of(rule, tensors, launch);
  arguments.output = launch.writes(output);
  arguments.state = launch.changes<float>(state);
  arguments.begins = launch.writes<float>(begins);
  launch.run<kernel::delta_rule>(value_type_of(rule.mixed), state_variant_of(rule),
                                 blocks_of_states(rule), arguments);
}

}  // namespace

Tensor delta_rule(const DeltaRule& rule, const Tensor& state) {
  if (!has_kernel(rule)) return plain::delta_rule(rule, state);
  const DeltaTensors tensors(rule);
  make_inverses(rule, tensors);
  std::vector<int64_t> sizes = rule.mixed.sizes().vec();
  sizes.back() = rule.heads() * rule.value_size();
  const Tensor output = at::empty(sizes, rule.mixed.options());
  run_forward(rule, tensors, output, state, {});
  return output;
}

DeltaRuleGradients delta_rule_backward(const DeltaRule& rule, const Tensor& gradient) {
  if (!has_kernel(rule)) return plain::delta_rule_backward(rule, gradient);
  const DeltaTensors tensors(rule);
  make_inverses(rule, tensors);
  const auto floats = rule.a_log.options();
  const int64_t chunks = rule.rows() / kStateChunk + rule.sequences();
  const Tensor begins = at::empty({chunks, rule.heads(), rule.key_size, rule.value_size()}, floats);
  run_forward(rule, tensors, {}, {}, begins);
  const Grid grid = blocks_of_states(rule);
  const int64_t rows_of_thread = int64_t{8} << state_variant_of(rule);
  const Tensor states = at::empty({grid.x * grid.y, kStateChunk, rows_of_thread, kThreads}, floats);
  const Tensor of_rows = at::empty({grid.y, rule.rows(), rule.heads(), 2, rule.key_size}, floats);
  const Tensor of_heads = at::empty({grid.y, rule.rows(), rule.heads(), 2}, floats);
  DeltaRuleGradients result = {.mixed = at::empty_like(rule.mixed),
                               .a = at::empty_like(rule.a),
                               .b = at::empty_like(rule.b),
                               .a_log = at::empty_like(tensors.decay),
                               .dt_bias = at::empty_like(tensors.decay)};
  const auto run = [&]<typename Kernel>(Kernel*, int variant, const Grid& blocks) {
    Launch launch(rule.mixed);
    DeltaRuleBackwardArguments arguments = {.forward = arguments_of(rule, tensors, launch),
                                            .gradient = launch.reads(gradient),
                                            .states = launch.changes<float>(states),
                                            .of_rows = launch.changes<float>(of_rows),
                                            .of_heads = launch.changes<float>(of_heads),
                                            .of_mixed = launch.writes(result.mixed),
                                            .of_a = launch.writes(result.a),
                                            .of_b = launch.writes(result.b),
                                            .of_a_log = launch.writes<float>(result.a_log),
                                            .of_dt_bias = launch.writes<float>(result.dt_bias),
                                            .parts = grid.y};
    arguments.forward.begins = launch.changes<float>(begins);
    launch.run<Kernel>(value_type_of(rule.mixed), variant, blocks, arguments);
  };
  run(static_cast<kernel::delta_rule_backward*>(nullptr), state_variant_of(rule), grid);
  run(static_cast<kernel::delta_rule_gradients*>(nullptr), 0, {.x = rule.rows() * rule.key_heads});
  result.a_log = result.a_log.sum(0);
  result.dt_bias = result.dt_bias.sum(0);
  return result;
}

namespace {

bool has_kernel(const Tensor& x, const ShortConvolution& convolution) {
  return convolution.weight.size(1) <= kLongestConvolution &&
         convolution.weight.scalar_type() == at::kFloat && x.scalar_type() != at::kDouble &&
         x.numel() > 0;
}

ConvolutionArguments arguments_of(const Tensor& x, const ShortConvolution& convolution,
                                  Launch& launch) {
  const TokenLayout* layout = convolution.tokens.layout;
  return {.input = launch.reads(x),
          .weight = launch.reads<float>(convolution.weight),
          .bias = launch.reads<float>(convolution.bias),
          .before = nullptr,
          .gradient = nullptr,
          .positions = layout != nullptr ? launch.reads<i64>(layout->positions) : nullptr,
          .output = nullptr,
          .sums = nullptr,
          .parts = nullptr,
          .rows = x.numel() / x.size(-1),
          .columns = x.size(-1),
          .tokens = convolution.tokens.tokens,
          .rows_at_once = 0,
          .size = static_cast<int>(convolution.weight.size(1)),
          .has_silu = convolution.has_silu};
}

Grid threads_of_values(const Tensor& x) { return {.x = (x.numel() + kThreads - 1) / kThreads}; }

}  // namespace

Tensor short_convolution(const Tensor& x, const ShortConvolution& convolution,
                         const Tensor& before) {
  if (!has_kernel(x, convolution)) return plain::short_convolution(x, convolution, before);
  const Tensor start = before.defined() ? before.to(at::kFloat).contiguous() : before;
  const Tensor output = at::empty_like(x);
  Launch launch(x);
  ConvolutionArguments arguments = arguments_of(x, convolution, launch);
  arguments.before = launch.reads<float>(start);
  arguments.output = launch.writes(output);
  launch.run<kernel::short_convolution>(value_type_of(x), 0, threads_of_values(x), arguments);
  return output;
}

ShortConvolutionGradients short_convolution_backward(const Tensor& gradient, const Tensor& x,
                                                     const ShortConvolution& convolution) {
  if (!has_kernel(x, convolution)) {
    return plain::short_convolution_backward(gradient, x, convolution);
  }
  const int64_t columns = x.size(-1);
  const int64_t size = convolution.weight.size(1);
  const RowParts blocks(x.numel() / columns);
  const Tensor sums = at::empty(x.sizes(), convolution.weight.options());
  const Tensor parts = at::empty({blocks.count, columns, size + 1}, convolution.weight.options());
  const Tensor of_input = at::empty_like(x);
  {
    Launch launch(x);
    ConvolutionArguments arguments = arguments_of(x, convolution, launch);
    arguments.gradient = launch.reads(gradient);
    arguments.sums = launch.writes<float>(sums);
    launch.run<kernel::short_convolution_sums>(value_type_of(x), 0, threads_of_values(x),
                                               arguments);
  }
  Launch launch(x);
  ConvolutionArguments arguments = arguments_of(x, convolution, launch);
  arguments.sums = launch.changes<float>(sums);
  arguments.output = launch.writes(of_input);
  arguments.parts = launch.writes<float>(parts);
  arguments.rows_at_once = blocks.rows_at_once;
  launch.run<kernel::short_convolution_backward>(
      value_type_of(x), 0, {.x = (columns + kThreads - 1) / kThreads, .y = blocks.count},
      arguments);
  const Tensor all = parts.sum(0);
  return {.input = of_input,
          .weight = all.narrow(1, 0, size).contiguous(),
          .bias = convolution.bias.defined() ? all.select(1, size).contiguous() : Tensor()};
}

}  // namespace finetune::kernels::cuda
