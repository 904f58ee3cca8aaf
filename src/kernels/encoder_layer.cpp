// SPDX-License-Identifier: MIT
#include "finetune/kernels/encoder_layer.h"

#include <ATen/ops/empty_like.h>

#include <array>
#include <utility>

#include "finetune/base/error.h"
#include "kernels/add_norm.h"
#include "kernels/attention_core.h"
#include "kernels/bias_gelu.h"
#include "kernels/block_attention.h"
#include "kernels/dropout_mask.h"

// B samples, T tokens, C hidden size, F intermediate size.
namespace finetune {
namespace {

// What the state holds, in this order; the last two where everything cheap is kept.
enum Kept : size_t {
  kInput,         // [B, T, C]
  kQuery,         // [B, T, C]
  kKey,           // [B, T, C]
  kValue,         // [B, T, C]
  kContext,       // [B, T, C], what attention returns
  kAttentionSum,  // [B, T, C], what attention's norm takes
  kIntermediate,  // [B, T, F], before bias and activation
  kOutputSum,     // [B, T, C], what the last norm takes
  kKeptBySelective,
  kAttentionNorm = kKeptBySelective,  // [B, T, C]
  kActivation,                        // [B, T, F]
  kKeptByAll,
};

Tensor rows_of(const Tensor& x) { return x.view({-1, x.size(-1)}); }

// One layer of one pass.
struct Layer {
  const EncoderLayerWeights& weights;
  const EncoderLayerOptions& options;
  const EncoderPass& pass;

  [[nodiscard]] Tensor values(const Tensor& weight) const {
    return weight.defined() ? pass.parameters.values(weight) : Tensor();
  }

  // x W^T + bias
  [[nodiscard]] Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    const Tensor result = linear_in(pass.precision, rows_of(x), values(weight), values(bias));
    return result.view({x.size(0), x.size(1), result.size(1)});
  }

  // The gradients of a linear layer's weight and of its input, which is added to or set.
  void linear_backward(const Tensor& dy, const Tensor& x, const Tensor& weight) const {
    pass.parameters.add_product(weight, rows_of(dy), rows_of(x));
  }
  void input_backward(const Tensor& dy, const Tensor& weight, const Tensor& dx, double beta) const {
    product_into(pass.precision, rows_of(dx), rows_of(dy), values(weight), beta);
  }

  // Undefined log_sum_exp: full attention, of which nothing but its result is kept.
  [[nodiscard]] kernels::BlockContext attend(const Tensor& query, const Tensor& key,
                                             const Tensor& value) const {
    if (is_block_sparse(query)) return kernels::block_attention(in_blocks(query, key, value));
    return {.context = kernels::attention(in_full(query, key, value)), .log_sum_exp = {}};
  }

  // Query, key and value become their gradients.
  void attend_backward(const Tensor& query, const Tensor& key, const Tensor& value,
                       const kernels::BlockContext& forward, const Tensor& gradient) const {
    if (forward.log_sum_exp.defined()) {
      kernels::block_attention_backward(in_blocks(query, key, value), forward, gradient);
    } else {
      kernels::attention_backward(in_full(query, key, value), gradient);
    }
  }

  [[nodiscard]] kernels::AddNorm attention_norm() const {
    return add_norm(weights.attention_norm, weights.attention_norm_bias,
                    DropoutSite::kAttentionOutput);
  }
  [[nodiscard]] kernels::AddNorm output_norm() const {
    return add_norm(weights.output_norm, weights.output_norm_bias, DropoutSite::kFeedForwardOutput);
  }

 private:
  [[nodiscard]] bool is_block_sparse(const Tensor& query) const {
    return options.block_sparse && pass.layout == nullptr &&
           query.size(1) > options.block_sparse->longest_full();
  }
  [[nodiscard]] kernels::BlockAttention in_blocks(const Tensor& query, const Tensor& key,
                                                  const Tensor& value) const {
    return kernels::make_block_attention(query, key, value, pass.mask,
                                         {.layer = options.layer,
                                          .heads = options.heads,
                                          .dropout_probability = options.attention_dropout,
                                          .dropout = pass.dropout},
                                         *options.block_sparse);
  }
  [[nodiscard]] kernels::Attention in_full(const Tensor& query, const Tensor& key,
                                           const Tensor& value) const {
    return {.query = query,
            .key = key,
            .value = value,
            .heads = options.heads,
            .mask = pass.mask,
            .dropout =
                kernels::make_dropout_numbers(options.attention_dropout, pass.dropout,
                                              options.layer, DropoutSite::kAttentionProbabilities),
            .layout = pass.layout.get()};
  }

  [[nodiscard]] kernels::AddNorm add_norm(const Tensor& gamma, const Tensor& beta,
                                          DropoutSite site) const {
    return {.gamma = values(gamma),
            .beta = values(beta),
            .epsilon = options.layer_norm_eps,
            .dropout = kernels::make_dropout_numbers(options.hidden_dropout, pass.dropout,
                                                     options.layer, site),
            .layout = pass.layout.get()};
  }
};

void add_norm_gradients(ParameterStore& parameters, const kernels::AddNormGradients& gradients,
                        const Tensor& gamma, const Tensor& beta, const Tensor& bias) {
  parameters.add(gamma, gradients.gamma);
  parameters.add(beta, gradients.beta);
  parameters.add(bias, gradients.bias);
}

// Hands over what the state holds, so that it is freed with its last use.
Tensor take(EncoderLayerState& state, Kept kept) { return std::exchange(state.tensors[kept], {}); }

// dy becomes dL/da, of the sum's residual: y = LN(a + Dropout(W2 f(W1 a))).
void feed_forward_backward(const Layer& layer, const Tensor& dy, EncoderLayerState& state) {
  const EncoderLayerWeights& weights = layer.weights;
  ParameterStore& parameters = layer.pass.parameters;
  const bool selective = state.tensors.size() == kKeptBySelective;

  const Tensor bias = layer.values(weights.intermediate_bias);
  Tensor intermediate = take(state, kIntermediate);
  Tensor activation;
  {
    kernels::AddNormGradients gradients =
        kernels::add_norm_backward(dy, take(state, kOutputSum), layer.output_norm());
    add_norm_gradients(parameters, gradients, weights.output_norm, weights.output_norm_bias,
                       weights.output_bias);
    if (selective) {
      activation = at::empty_like(intermediate);
      kernels::bias_activation(intermediate, bias, layer.options.activation, activation);
    } else {
      activation = take(state, kActivation);
    }
    layer.linear_backward(gradients.product, activation, weights.output);
    layer.input_backward(gradients.product, weights.output, activation, 0.0);
  }
  const Tensor of_intermediate = std::move(activation);
  parameters.add(weights.intermediate_bias,
                 kernels::bias_activation_backward(intermediate, bias, layer.options.activation,
                                                   of_intermediate));
  intermediate = Tensor();
  const Tensor norm = selective
                          ? kernels::norm(state.tensors[kAttentionSum], layer.attention_norm())
                          : take(state, kAttentionNorm);
  layer.linear_backward(of_intermediate, norm, weights.intermediate);
  layer.input_backward(of_intermediate, weights.intermediate, dy, 1.0);
}

// da becomes dL/dx of all but the projections; returns the gradient of attention's context.
Tensor attention_output_backward(const Layer& layer, const Tensor& da, EncoderLayerState& state) {
  const EncoderLayerWeights& weights = layer.weights;
  const kernels::AddNormGradients gradients =
      kernels::add_norm_backward(da, take(state, kAttentionSum), layer.attention_norm());
  add_norm_gradients(layer.pass.parameters, gradients, weights.attention_norm,
                     weights.attention_norm_bias, weights.attention_output_bias);
  const Tensor& context = state.tensors[kContext];
  layer.linear_backward(gradients.product, context, weights.attention_output);
  // The backward pass over blocks needs the context itself.
  const Tensor of_context = state.log_sum_exp.defined() ? at::empty_like(context) : context;
  layer.input_backward(gradients.product, weights.attention_output, of_context, 0.0);
  return of_context;
}

}  // namespace

Tensor encoder_layer_forward(const Tensor& x, const EncoderLayerWeights& weights,
                             const EncoderLayerOptions& options, const EncoderPass& pass,
                             EncoderLayerState* state) {
  FT_CHECK(x.dim() == 3 && x.is_contiguous(), "an encoder layer takes a contiguous [B, T, C]");
  const Layer layer = {weights, options, pass};
  const auto keep = [&](Kept kept, const Tensor& tensor) {
    if (state != nullptr) state->tensors[kept] = tensor;
  };
  if (state != nullptr) state->tensors.resize(pass.selective ? kKeptBySelective : kKeptByAll);

  Tensor context;
  {
    const Tensor query = layer.linear(x, weights.query, weights.query_bias);
    const Tensor key = layer.linear(x, weights.key, weights.key_bias);
    const Tensor value = layer.linear(x, weights.value, weights.value_bias);
    keep(kInput, x);
    keep(kQuery, query);
    keep(kKey, key);
    keep(kValue, value);
    const kernels::BlockContext attended = layer.attend(query, key, value);
    context = attended.context;
    keep(kContext, context);
    if (state != nullptr) state->log_sum_exp = attended.log_sum_exp;
  }
  Tensor sum = layer.linear(context, weights.attention_output, Tensor());
  context = Tensor();
  const Tensor norm = kernels::add_norm(sum, layer.values(weights.attention_output_bias), x,
                                        layer.attention_norm());
  keep(kAttentionSum, sum);
  if (!pass.selective) keep(kAttentionNorm, norm);

  Tensor intermediate = layer.linear(norm, weights.intermediate, Tensor());
  Tensor activation = state == nullptr ? intermediate : at::empty_like(intermediate);
  kernels::bias_activation(intermediate, layer.values(weights.intermediate_bias),
                           options.activation, activation);
  keep(kIntermediate, intermediate);
  if (!pass.selective) keep(kActivation, activation);
  intermediate = Tensor();

  sum = layer.linear(activation, weights.output, Tensor());
  activation = Tensor();
  keep(kOutputSum, sum);
  return kernels::add_norm(sum, layer.values(weights.output_bias), norm, layer.output_norm());
}

Tensor encoder_layer_backward(Tensor dy, const EncoderLayerWeights& weights,
                              const EncoderLayerOptions& options, const EncoderPass& pass,
                              EncoderLayerState& state) {
  FT_CHECK(state.tensors.size() == kKeptBySelective || state.tensors.size() == kKeptByAll,
           "a layer's state serves one backward pass");
  const Layer layer = {weights, options, pass};
  const Tensor dx = dy.contiguous();
  dy = Tensor();
  feed_forward_backward(layer, dx, state);

  const Tensor x = take(state, kInput);
  std::array<Tensor, 3> projected = {take(state, kQuery), take(state, kKey), take(state, kValue)};
  {
    const Tensor of_context = attention_output_backward(layer, dx, state);
    const kernels::BlockContext forward = {.context = take(state, kContext),
                                           .log_sum_exp = std::exchange(state.log_sum_exp, {})};
    layer.attend_backward(projected[0], projected[1], projected[2], forward, of_context);
  }
  state.tensors.clear();
  const std::array<Tensor, 3> matrices = {weights.query, weights.key, weights.value};
  const std::array<Tensor, 3> biases = {weights.query_bias, weights.key_bias, weights.value_bias};
  for (size_t i = 0; i < 3; ++i) {
    const Tensor gradient = std::exchange(projected[i], {});
    if (biases[i].defined()) {
      const auto type = gradient.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
      pass.parameters.add(biases[i], rows_of(gradient).sum(0, false, type));
    }
    layer.linear_backward(gradient, x, matrices[i]);
    layer.input_backward(gradient, matrices[i], dx, 1.0);
  }
  pass.parameters.complete({weights.query, weights.query_bias, weights.key, weights.key_bias,
                            weights.value, weights.value_bias, weights.attention_output,
                            weights.attention_output_bias, weights.attention_norm,
                            weights.attention_norm_bias, weights.intermediate,
                            weights.intermediate_bias, weights.output, weights.output_bias,
                            weights.output_norm, weights.output_norm_bias});
  return dx;
}

}  // namespace finetune
