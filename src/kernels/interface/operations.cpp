// SPDX-License-Identifier: MIT
// The requirements on the arguments of the operations, checked in one place for all devices.
#include "finetune/base/error.h"
#include "kernels/interface/kernels.h"

namespace finetune::kernels {
namespace {

void check_attention(const Attention& inputs) {
  FT_CHECK(inputs.query.is_contiguous() && inputs.key.is_contiguous() &&
               inputs.value.is_contiguous() && inputs.query.size(2) % inputs.heads == 0,
           "attention takes contiguous [B, T, C] that its heads divide");
  FT_CHECK(inputs.heads % inputs.key_heads() == 0 &&
               inputs.key.size(2) == inputs.key_heads() * inputs.head_size(),
           "each head of the keys serves as many heads of the queries");
  FT_CHECK(!inputs.mask.defined() ||
               (inputs.mask.is_contiguous() && inputs.mask.scalar_type() == at::kBool &&
                inputs.mask.numel() == inputs.key.size(0) * inputs.key.size(1)),
           "the mask of attention is a contiguous bool [B, 1, 1, T]");
  FT_CHECK(inputs.layout == nullptr || inputs.layout->tokens() == inputs.key.size(1),
           "the layout is that of the tokens");
  const TokenLayout* const queries = inputs.queries;
  FT_CHECK(queries == nullptr ? inputs.query.size(1) == inputs.key.size(1)
                              : kernels_for(inputs.query).attends_fewer_queries &&
                                    queries->tokens() == inputs.query.size(1) &&
                                    queries->rows() == inputs.samples(),
           "queries are those of all tokens, or of the tokens that their layout names");
}

}  // namespace

Tensor add_norm(const Tensor& product, const Tensor& bias, const Tensor& residual,
                const AddNorm& weights) {
  FT_CHECK(product.is_contiguous() && residual.is_contiguous(), "rows are contiguous");
  return kernels_for(product).add_norm(product, bias, residual, weights);
}

Tensor norm(const Tensor& sums, const AddNorm& weights) {
  return kernels_for(sums).norm(sums, weights);
}

AddNormGradients add_norm_backward(const Tensor& gradient, const Tensor& sums,
                                   const AddNorm& weights) {
  FT_CHECK(gradient.is_contiguous() && sums.is_contiguous(), "rows are contiguous");
  return kernels_for(sums).add_norm_backward(gradient, sums, weights);
}

Tensor attention(const Attention& inputs) {
  check_attention(inputs);
  return kernels_for(inputs.query).attention(inputs);
}

void attention_backward(const Attention& inputs, const Tensor& gradient) {
  check_attention(inputs);
  kernels_for(inputs.query).attention_backward(inputs, gradient);
}

void bias_activation(const Tensor& input, const Tensor& bias, Activation f, const Tensor& output) {
  FT_CHECK(input.is_contiguous() && output.is_contiguous(), "rows are contiguous");
  kernels_for(input).bias_activation(input, bias, f, output);
}

Tensor bias_activation_backward(const Tensor& input, const Tensor& bias, Activation f,
                                const Tensor& gradient) {
  FT_CHECK(input.is_contiguous() && gradient.is_contiguous(), "rows are contiguous");
  return kernels_for(input).bias_activation_backward(input, bias, f, gradient);
}

Tensor sum_of_rows(const Tensor& rows) { return sums_of_rows({rows}).front(); }

std::vector<Tensor> sums_of_rows(const std::vector<Tensor>& matrices) {
  FT_CHECK(!matrices.empty(), "at least one matrix");
  const Tensor& first = matrices.front();
  for (const Tensor& one : matrices) {
    FT_CHECK(one.dim() == 2, "rows of a matrix");
    FT_CHECK(one.sizes() == first.sizes() && one.scalar_type() == first.scalar_type(),
             "matrices of one shape and type");
  }
  return kernels_for(first).sums_of_rows(matrices);
}

void add_partial_sums(const std::vector<PartialSums>& sums) {
  for (const PartialSums& one : sums) {
    FT_CHECK(one.target.is_contiguous() && one.parts.is_contiguous() &&
                 one.parts.scalar_type() == at::kFloat && one.parts.dim() == 2 &&
                 one.parts.size(1) == one.target.numel(),
             "contiguous parts of the target's size");
  }
  if (!sums.empty()) kernels_for(sums.front().target).add_partial_sums(sums);
}

void add_rows(const Tensor& target, const Tensor& indices, const Tensor& rows, int64_t skipped) {
  kernels_for(target).add_rows(target, indices, rows, skipped);
}

void sum_rows(const Tensor& target, const Tensor& indices, const Tensor& rows) {
  kernels_for(target).sum_rows(target, indices, rows);
}

bool add_rows_stochastically(const Tensor& target, const Tensor& indices, const Tensor& rows,
                             int64_t skipped, const RoundingKey& key) {
  return kernels_for(target).add_rows_stochastically(target, indices, rows, skipped, key);
}

Tensor softmax_cross_entropy_(const Tensor& logits, const Tensor& labels,
                              const SoftmaxCrossEntropyOptions& options) {
  FT_CHECK(logits.is_contiguous(), "logits are contiguous");
  return kernels_for(logits).softmax_cross_entropy_(logits, labels, options);
}

bool has_token_product(const Tensor& a, const Tensor& b) {
  return kernels_for(a).has_token_product(a, b);
}

void token_product(const Tensor& target, const Tensor& a, const Tensor& b, double beta) {
  FT_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0) && target.size(0) == a.size(0) &&
               target.size(1) == b.size(1) && (beta == 0.0 || beta == 1.0) &&
               (target.stride(1) == 1 || target.size(1) == 1),
           "a product of matrices, with or without the target's values");
  kernels_for(target).token_product(target, a, b, beta);
}

}  // namespace finetune::kernels

namespace finetune {

namespace {

void check_squares(const Tensor& values) {
  FT_CHECK(values.is_contiguous() &&
               (values.scalar_type() == at::kFloat || values.scalar_type() == at::kBFloat16),
           "contiguous float32 or bfloat16");
}

}  // namespace

double sum_of_squares(const Tensor& values) {
  check_squares(values);
  return kernels::kernels_for(values).sum_of_squares(values);
}

double sum_of_all_squares(const std::vector<Tensor>& tensors) {
  for (const Tensor& tensor : tensors) check_squares(tensor);
  return tensors.empty() ? 0.0 : kernels::kernels_for(tensors.front()).sum_of_all_squares(tensors);
}

std::vector<double> block_sums_of_squares(const Tensor& values) {
  check_squares(values);
  if (values.numel() == 0) return {};
  return kernels::kernels_for(values).block_sums_of_squares(values);
}

double mean(const Tensor& values) {
  FT_CHECK(values.is_contiguous() && values.scalar_type() == at::kFloat, "contiguous float32");
  return kernels::kernels_for(values).mean(values);
}

}  // namespace finetune
