// SPDX-License-Identifier: MIT
#include "finetune/kernels/layer_operations.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/silu.h>

#include "finetune/base/error.h"
#include "kernels/interface/add_norm.h"
#include "kernels/interface/attention_core.h"
#include "kernels/interface/bias_gelu.h"
#include "kernels/interface/dropout_mask.h"
#include "kernels/interface/kernels.h"

namespace finetune::kernels {
namespace {

AddNorm add_norm_of(const RowNorm& norm, const PassInputs& pass) {
  return {.gamma = norm.gamma,
          .beta = norm.beta,
          .epsilon = norm.epsilon,
          .dropout = make_dropout_numbers(norm.dropout, pass.dropout, norm.layer, norm.site),
          .layout = pass.layout.get()};
}

bool is_block_sparse(const Tensor& key, const HeadAttention& attention, const PassInputs& pass) {
  return attention.block_sparse && pass.layout == nullptr &&
         key.size(1) > attention.block_sparse->longest_full();
}

BlockAttention in_blocks(const Tensor& query, const Tensor& key, const Tensor& value,
                         const HeadAttention& attention, const PassInputs& pass) {
  return make_block_attention(query, key, value, pass.mask,
                              {.layer = attention.layer,
                               .heads = attention.heads,
                               .dropout_probability = attention.dropout,
                               .dropout = pass.dropout},
                              *attention.block_sparse);
}

Attention in_full(const Tensor& query, const Tensor& key, const Tensor& value,
                  const HeadAttention& attention, const PassInputs& pass) {
  return {.query = query,
          .key = key,
          .value = value,
          .heads = attention.heads,
          .kv_heads = attention.kv_heads,
          .rule = {.causal = attention.causal,
                   .window = attention.window,
                   .scale = attention.scale,
                   .softcap = attention.softcap},
          .mask = pass.mask,
          .dropout = make_dropout_numbers(attention.dropout, pass.dropout, attention.layer,
                                          DropoutSite::kAttentionProbabilities),
          .sinks = attention.sinks,
          .of_sinks = {},
          .layout = pass.layout.get(),
          .queries = pass.queries.get()};
}

}  // namespace

Tensor fused_add_norm(const Tensor& product, const Tensor& bias, const Tensor& residual,
                      const RowNorm& norm, const PassInputs& pass) {
  return add_norm(product, bias, residual, add_norm_of(norm, pass));
}

Tensor fused_norm(const Tensor& sums, const RowNorm& norm, const PassInputs& pass) {
  return kernels::norm(sums, add_norm_of(norm, pass));
}

RowNormGradients fused_add_norm_backward(const Tensor& gradient, const Tensor& sums,
                                         const RowNorm& norm, const PassInputs& pass) {
  const AddNormGradients gradients = add_norm_backward(gradient, sums, add_norm_of(norm, pass));
  return {.product = gradients.product,
          .gamma = gradients.gamma,
          .beta = gradients.beta,
          .bias = gradients.bias};
}

void fused_activation(const Tensor& input, const Tensor& bias, Activation f, const Tensor& output) {
  bias_activation(input, bias, f, output);
}

Tensor fused_activation_backward(const Tensor& input, const Tensor& bias, Activation f,
                                 const Tensor& gradient) {
  return bias_activation_backward(input, bias, f, gradient);
}

Tensor silu(const Tensor& x) { return at::silu(x); }
Tensor gelu(const Tensor& x) { return at::gelu(x); }
Tensor tanh_gelu(const Tensor& x) { return at::gelu(x, "tanh"); }

Tensor fused_gated_product(const Tensor& gate, const Tensor& up, Activation f) {
  FT_CHECK(gate.is_contiguous() && up.is_contiguous() && gate.scalar_type() == up.scalar_type() &&
               gate.numel() == up.numel(),
           "factors are contiguous, of one type and one size");
  return kernels_for(gate).gated_product(gate, up, f);
}

void fused_gated_product_backward(const Tensor& gate, const Tensor& up, Activation f,
                                  const Tensor& gradient) {
  FT_CHECK(gate.is_contiguous() && up.is_contiguous() && gradient.is_contiguous() &&
               gate.scalar_type() == up.scalar_type() &&
               gate.scalar_type() == gradient.scalar_type() && gate.numel() == up.numel() &&
               gate.numel() == gradient.numel(),
           "factors and the gradient are contiguous, of one type and one size");
  kernels_for(gate).gated_product_backward(gate, up, f, gradient);
}

Tensor fused_xielu(const Tensor& x, const Xielu& f) {
  FT_CHECK(x.is_contiguous(), "values are contiguous");
  return kernels_for(x).xielu(x, f);
}

XieluGradients fused_xielu_backward(const Tensor& gradient, const Tensor& x, const Xielu& f) {
  FT_CHECK(x.is_contiguous() && gradient.is_contiguous() && x.numel() == gradient.numel() &&
               x.scalar_type() == gradient.scalar_type(),
           "values and gradients are contiguous, of one type and one size");
  return kernels_for(x).xielu_backward(gradient, x, f);
}

Tensor fused_rms_norm(const Tensor& x, const RmsNorm& norm, at::ScalarType type) {
  FT_CHECK(x.is_contiguous() && norm.weight.is_contiguous() && norm.weight.numel() == x.size(-1),
           "rows are contiguous, with a factor for each column");
  return kernels_for(x).rms_norm(x, norm, type);
}

SumAndNorm fused_add_rms_norm(const Tensor& x, const Tensor& branch, const RmsNorm& norm,
                              at::ScalarType type) {
  FT_CHECK(x.is_contiguous() && branch.is_contiguous() && x.sizes() == branch.sizes() &&
               norm.weight.is_contiguous() && norm.weight.numel() == x.size(-1),
           "rows are contiguous and as many, with a factor for each column");
  return kernels_for(x).add_rms_norm(x, branch, norm, type);
}

RmsNormGradients fused_rms_norm_backward(const Tensor& gradient, const Tensor& x,
                                         const RmsNorm& norm, const Tensor& sum, bool rounds) {
  FT_CHECK(gradient.is_contiguous() && x.is_contiguous() && norm.weight.is_contiguous() &&
               gradient.numel() == x.numel() &&
               (!sum.defined() || (sum.is_contiguous() && sum.numel() == x.numel() &&
                                   sum.scalar_type() == x.scalar_type())),
           "rows and their gradients are contiguous");
  return kernels_for(x).rms_norm_backward(gradient, x, norm, sum, rounds);
}

std::vector<Tensor> fused_rotation(const std::vector<Tensor>& x, const HeadRotation& rotation) {
  const Tensor& first = x.front();
  FT_CHECK(rotation.cos.is_contiguous() && rotation.sin.is_contiguous() &&
               rotation.cos.sizes() == rotation.sin.sizes() &&
               2 * rotation.cos.size(-1) <= rotation.head_size,
           "a rotation of a part of each head");
  for (const Tensor& heads : x) {
    FT_CHECK(heads.is_contiguous() && heads.scalar_type() == first.scalar_type() &&
                 heads.size(-2) == rotation.cos.size(0) &&
                 heads.numel() / heads.size(-1) == first.numel() / first.size(-1) &&
                 heads.size(-1) % rotation.head_size == 0,
             "heads of the same tokens that the rotation fits, contiguous");
  }
  return kernels_for(first).rotate_heads(x, rotation);
}

bool has_adapter_products(const Tensor& x, const Tensor& a) {
  const AdapterProducts* products = kernels_for(x).adapter_products;
  return products != nullptr && products->serves(x, a);
}

std::vector<Tensor> fused_adapter_products(const Tensor& x,
                                           const std::vector<AdapterFactor>& adapters) {
  for (const AdapterFactor& adapter : adapters) {
    FT_CHECK(has_adapter_products(x, adapter.a) && x.size(1) == adapter.a.size(1),
             "kernels of an adapter");
  }
  return kernels_for(x).adapter_products->products(x, adapters);
}

Tensor fused_adapter_backward(const Tensor& of_input, bool adds, const Tensor& x, const Tensor& low,
                              const Tensor& a, const RowDropout& dropout) {
  FT_CHECK(has_adapter_products(x, a) && low.scalar_type() == x.scalar_type() &&
               low.size(0) == x.size(0) && low.size(1) == a.size(0) &&
               (!of_input.defined() ||
                (of_input.sizes() == x.sizes() && of_input.scalar_type() == x.scalar_type())),
           "a gradient that fits the adapter's input");
  return kernels_for(x).adapter_products->backward(of_input, adds, x, low, a, dropout);
}

bool attends_fewer_queries(const Tensor& x, const HeadAttention& attention,
                           const PassInputs& pass) {
  return kernels_for(x).attends_fewer_queries && !is_block_sparse(x, attention, pass);
}

Attended fused_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                         const HeadAttention& attention, const PassInputs& pass) {
  const bool sparse = is_block_sparse(key, attention, pass);
  if (!sparse) {
    const Attention full = in_full(query, key, value, attention, pass);
    const FlashAttention* flash = kernels_for(query).flash_attention;
    if (flash == nullptr || !flash->serves(full)) {
      return {.context = kernels::attention(full), .log_sum_exp = {}};
    }
    return flash->forward(full);
  }
  const BlockContext result = block_attention(in_blocks(query, key, value, attention, pass));
  return {.context = result.context, .log_sum_exp = result.log_sum_exp};
}

AttendedGradients fused_attention_backward(const Tensor& query, const Tensor& key,
                                           const Tensor& value, const Attended& forward,
                                           const Tensor& gradient, const HeadAttention& attention,
                                           const PassInputs& pass) {
  const AttendedGradients overwritten = {.query = query, .key = key, .value = value};
  if (is_block_sparse(key, attention, pass)) {
    block_attention_backward(in_blocks(query, key, value, attention, pass),
                             {.context = forward.context, .log_sum_exp = forward.log_sum_exp},
                             gradient);
    return overwritten;
  }
  Attention full = in_full(query, key, value, attention, pass);
  if (full.sinks.defined()) {
    full.of_sinks = at::zeros({full.samples(), full.heads}, full.sinks.options());
  }
  AttendedGradients result = overwritten;
  if (forward.log_sum_exp.defined()) {
    result = kernels_for(query).flash_attention->backward(full, forward, gradient);
  } else {
    attention_backward(full, gradient);
  }
  if (full.sinks.defined()) result.sinks = full.of_sinks.sum(0);
  return result;
}

}  // namespace finetune::kernels
