// SPDX-License-Identifier: MIT
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "finetune/kernels/dry_device.h"
#include "kernels/cpu/loops/delta_rule.h"
#include "kernels/cpu/loops/tile_product.h"
#include "kernels/cpu/operations.h"
#include "kernels/cpu/rows.h"
#include "kernels/meta/operations.h"
#include "kernels/plain/operations.h"

namespace finetune::kernels::meta {
namespace {

// The sum of rows, [C] in float32.
Tensor row_like(const Tensor& columns) { return at::empty_like(columns); }

Tensor add_norm(const Tensor& product, const Tensor& /*bias*/, const Tensor& /*residual*/,
                const AddNorm& /*weights*/) {
  return at::empty_like(product);
}

Tensor norm(const Tensor& sums, const AddNorm& /*weights*/) { return at::empty_like(sums); }

AddNormGradients add_norm_backward(const Tensor& gradient, const Tensor& sums,
                                   const AddNorm& weights) {
  return {.product = weights.dropout ? sums : gradient,
          .gamma = row_like(weights.gamma),
          .beta = row_like(weights.gamma),
          .bias = row_like(weights.gamma)};
}

// The memory of a thread is that of a tile, which a core's cache has room for.
Tensor attention(const Attention& inputs) { return at::empty_like(inputs.query); }

void attention_backward(const Attention& /*inputs*/, const Tensor& gradient) {
  (void)gradient.contiguous();
}

BlockContext block_attention(const BlockAttention& inputs) {
  return {
      .context = at::empty_like(inputs.query),
      .log_sum_exp = at::empty({inputs.query.size(0), inputs.pattern.heads, inputs.query.size(1)},
                               inputs.query.options().dtype(at::kFloat))};
}

// The matrices of the heads that are computed at once.
void block_attention_backward(const BlockAttention& inputs, const BlockContext& /*forward*/,
                              const Tensor& gradient) {
  constexpr int64_t kMatrices = 9;
  const BlockPattern& pattern = inputs.pattern;
  const int64_t columns = whole_vectors(inputs.query.size(2) / pattern.heads);
  const int64_t wave = std::min(inputs.query.size(0) * pattern.heads, dry_device().threads);
  (void)at::empty({wave, kMatrices, pattern.blocks * pattern.block_size, columns},
                  gradient.options().dtype(at::kFloat));
}

void bias_activation(const Tensor& input, const Tensor& bias, Activation f, const Tensor& output) {
  if (f != nullptr) plain::bias_activation(input, bias, f, output);
}

Tensor bias_activation_backward(const Tensor& input, const Tensor& bias, Activation f,
                                const Tensor& gradient) {
  if (f != nullptr) return plain::bias_activation_backward(input, bias, f, gradient);
  return row_like(bias);
}

Tensor dropout(const Tensor& x, const DropoutNumbers& numbers, const TokenLayout* layout) {
  if (x.scalar_type() != at::kFloat) return plain::dropout(x, numbers, layout);
  return at::empty_like(x.contiguous());
}

Tensor rms_norm(const Tensor& x, const RmsNorm& /*norm*/, at::ScalarType type) {
  return at::empty_like(x).to(type);
}

SumAndNorm add_rms_norm(const Tensor& x, const Tensor& branch, const RmsNorm& norm,
                        at::ScalarType type) {
  return norm_of_sum(x, branch, norm, type, rms_norm);
}

RmsNormGradients rms_norm_backward(const Tensor& gradient, const Tensor& x, const RmsNorm& norm,
                                   const Tensor& sum, bool /*rounds*/) {
  const Tensor of_input = gradient.to(x.scalar_type());
  return {.input = sum.defined() ? sum : of_input, .weight = row_like(norm.weight)};
}

Tensor gated_product(const Tensor& gate, const Tensor& up, Activation f) {
  return f == silu ? at::empty_like(gate) : plain::gated_product(gate, up, f);
}

void gated_product_backward(const Tensor& gate, const Tensor& up, Activation f,
                            const Tensor& gradient) {
  if (f != silu) plain::gated_product_backward(gate, up, f, gradient);
}

Tensor xielu(const Tensor& x, const Xielu& /*f*/) { return at::empty_like(x); }

XieluGradients xielu_backward(const Tensor& /*gradient*/, const Tensor& /*x*/, const Xielu& f) {
  return {.alpha_p = row_like(f.alpha_p).view({1, 1}), .alpha_n = row_like(f.alpha_n).view({1, 1})};
}

std::vector<Tensor> rotate_heads(const std::vector<Tensor>& x, const HeadRotation& /*rotation*/) {
  return x;
}

Tensor delta_rule(const DeltaRule& rule, const Tensor& /*state*/) {
  std::vector<int64_t> sizes = rule.mixed.sizes().vec();
  sizes.back() = rule.heads() * rule.value_size();
  const Tensor mixed = rule.mixed.to(at::kFloat);
  [[maybe_unused]] const Tensor gates = at::empty({4, rule.rows(), rule.heads()}, mixed.options());
  return at::empty(sizes, mixed.options()).to(rule.mixed.scalar_type());
}

DeltaRuleGradients delta_rule_backward(const DeltaRule& rule, const Tensor& gradient) {
  const Tensor mixed = rule.mixed.to(at::kFloat);
  const Tensor of_output = gradient.to(at::kFloat);
  const Tensor of_mixed = at::empty_like(mixed);
  [[maybe_unused]] const Tensor gates = at::empty({7, rule.rows(), rule.heads()}, mixed.options());
  const DeltaRuleGradients result = {.mixed = of_mixed.to(rule.mixed.scalar_type()),
                                     .a = at::empty_like(rule.a),
                                     .b = at::empty_like(rule.b),
                                     .a_log = row_like(rule.a_log),
                                     .dt_bias = row_like(rule.dt_bias)};
  // Of one thread at the longest sequence; others have less or as much.
  int64_t longest = 0;
  for (int64_t s = 0; s < rule.sequences(); ++s) {
    longest = std::max(longest, rule.tokens.start(s + 1) - rule.tokens.start(s));
  }
  const int64_t values = delta_rule_backward_scratch({.query = nullptr,
                                                      .key = nullptr,
                                                      .value = nullptr,
                                                      .stride = 0,
                                                      .decay = nullptr,
                                                      .beta = nullptr,
                                                      .head_stride = 0,
                                                      .output = nullptr,
                                                      .output_stride = 0,
                                                      .tokens = longest,
                                                      .heads = 1,
                                                      .size = rule.key_size,
                                                      .value_size = rule.value_size(),
                                                      .state = nullptr,
                                                      .scratch = nullptr});
  (void)at::empty({values}, rule.a_log.options());
  return result;
}

Tensor short_convolution(const Tensor& x, const ShortConvolution& /*convolution*/,
                         const Tensor& /*before*/) {
  return at::empty_like(x.to(at::kFloat)).to(x.scalar_type());
}

ShortConvolutionGradients short_convolution_backward(const Tensor& gradient, const Tensor& x,
                                                     const ShortConvolution& convolution) {
  const Tensor input = x.to(at::kFloat);
  const Tensor of_sums = convolution.has_silu && gradient.scalar_type() == at::kFloat
                             ? at::empty_like(gradient)
                             : gradient.to(at::kFloat);
  const Tensor of_input = at::empty_like(input);
  const int64_t columns = x.size(-1);
  const int64_t rows = x.numel() / columns;
  int64_t parts = 0;
  for (int64_t s = 0; s < convolution.tokens.sequences(rows); ++s) {
    parts += RowParts(convolution.tokens.start(s + 1) - convolution.tokens.start(s)).count();
  }
  (void)at::empty({parts, convolution.weight.size(1) + 1, columns}, of_input.options());
  return {.input = of_input.to(x.scalar_type()),
          .weight = at::empty_like(convolution.weight),
          .bias = convolution.bias.defined() ? row_like(convolution.bias) : Tensor()};
}

Tensor softmax_cross_entropy_(const Tensor& logits, const Tensor& /*labels*/,
                              const SoftmaxCrossEntropyOptions& /*options*/) {
  return at::empty({logits.size(0)}, logits.options().dtype(at::kDouble));
}

void token_product(const Tensor& /*target*/, const Tensor& /*a*/, const Tensor& /*b*/,
                   double /*beta*/) {}

void add_rows(const Tensor& /*target*/, const Tensor& /*indices*/, const Tensor& /*rows*/,
              int64_t /*skipped*/) {}
void sum_rows(const Tensor& /*target*/, const Tensor& /*indices*/, const Tensor& /*rows*/) {}

void round_stochastically(const Tensor& /*target*/, const Tensor& /*values*/,
                          const RoundingKey& /*key*/) {}
void add_all_stochastically(const std::vector<RoundedSum>& /*sums*/) {}
void split_values(const Tensor& /*values*/, const Tensor& /*weight*/,
                  const Tensor& /*correction*/) {}
void join_all_values(const std::vector<SplitTensor>& /*list*/) {}

Tensor joined_rows(const Tensor& weight, const Tensor& /*correction*/, const Tensor& indices) {
  std::vector<int64_t> sizes = indices.sizes().vec();
  sizes.push_back(weight.size(1));
  return at::empty(sizes, weight.options().dtype(at::kFloat));
}

Tensor dequantize_mxfp4(const Tensor& codes, const Tensor& /*scales*/, int64_t /*first*/,
                        int64_t count, at::ScalarType type) {
  return at::empty({count}, codes.options().dtype(type));
}

Tensor dequantize_nf4(const Tensor& codes, const Tensor& /*scales*/, int64_t /*first*/,
                      int64_t count, at::ScalarType type) {
  return at::empty({count}, codes.options().dtype(type));
}

double sum_of_squares(const Tensor& /*values*/) { return 0.0; }
double sum_of_all_squares(const std::vector<Tensor>& /*tensors*/) { return 0.0; }
std::vector<double> block_sums_of_squares(const Tensor& /*values*/) { return {}; }
double mean(const Tensor& /*values*/) { return 0.0; }

// Steps of AdamW in place.
void update_dynamic(const ParameterTensors& /*parameter*/, const DynamicState& /*state*/,
                    const AdamWUpdate& /*update*/, const BitsAndBytesNumbers& /*numbers*/) {}
void update_wide(const ParameterTensors& /*parameter*/, const WideState& /*state*/,
                 const AdamWUpdate& /*update*/, const BitsAndBytesNumbers& /*numbers*/) {}
void update_companded(const ParameterTensors& /*parameter*/, const CompandedState& /*state*/,
                      const AdamWUpdate& /*update*/, const AdamWNumbers& /*numbers*/) {}

using cpu::add_rows_stochastically;
using cpu::has_fast_products;
using cpu::has_token_product;
using cpu::update_together;
using plain::add_partial_sums;
using plain::decode_companded;
using plain::decode_dynamic;
using plain::encode_companded;
using plain::encode_dynamic;
using plain::sums_of_rows;

}  // namespace

constinit const Kernels kCpuKernels = {
    .name = "cpu",
#define FINETUNE_OPERATION(operation) .operation = operation,  // NOLINT: a member
#include "kernels/interface/operations.def"
    .chunk_values = cpu::kChunkValues,
    .is_asynchronous = false,
    .attends_fewer_queries = true,
};

}  // namespace finetune::kernels::meta
