// SPDX-License-Identifier: MIT
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "finetune/kernels/dry_device.h"
#include "kernels/cpu/operations.h"
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
  constexpr int64_t kLanes = 16;  // to which columns are padded
  const int64_t columns = (inputs.query.size(2) / pattern.heads + kLanes - 1) / kLanes * kLanes;
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

std::vector<Tensor> rotate_heads(const std::vector<Tensor>& x, const HeadRotation& /*rotation*/) {
  return x;
}

Tensor softmax_cross_entropy_(const Tensor& logits, const Tensor& /*labels*/,
                              const SoftmaxCrossEntropyOptions& /*options*/) {
  return at::empty({logits.size(0)}, logits.options().dtype(at::kDouble));
}

void token_product(const Tensor& /*target*/, const Tensor& /*a*/, const Tensor& /*b*/,
                   TokenAxis /*tokens*/, double /*beta*/) {}

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

Tensor dequantize_nf4(const Tensor& codes, const Tensor& /*scales*/, int64_t /*first*/,
                      int64_t count, at::ScalarType type) {
  return at::empty({count}, codes.options().dtype(type));
}

double sum_of_squares(const Tensor& /*values*/) { return 0.0; }
double sum_of_all_squares(const std::vector<Tensor>& /*tensors*/) { return 0.0; }
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
};

}  // namespace finetune::kernels::meta
