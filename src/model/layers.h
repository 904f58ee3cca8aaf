// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/model/model_config.h"
#include "model/forward_context.h"
#include "model/nn.h"

// The layers that have parameters. Where the context has a store, their gradients go there in one
// step; else they are torch's operators and autograd's matter. Values are set by whoever owns the
// model: memory is not touched here.
namespace finetune {

// y = x W^T + b
class LinearImpl : public nn::Module {
 public:
  LinearImpl(int64_t inputs, int64_t outputs, bool has_bias = true);
  Tensor forward(const Tensor& x, const ForwardContext& context) const;

  Tensor weight;  // [outputs, inputs]
  Tensor bias;    // [outputs], or undefined
};
TORCH_MODULE(Linear);

// Over the last dimension, the hidden size, with the configuration's epsilon.
class LayerNormImpl : public nn::Module {
 public:
  explicit LayerNormImpl(const ModelConfig& config);
  Tensor forward(const Tensor& x, const ForwardContext& context) const;

  Tensor weight, bias;  // [C]

 private:
  double epsilon_;
};
TORCH_MODULE(LayerNorm);

class EmbeddingImpl : public nn::Module {
 public:
  EmbeddingImpl(int64_t rows, int64_t columns);
  // ids [...] int64 -> [..., C]. The row `padding_id` gets no gradient; -1: all do.
  Tensor forward(const Tensor& ids, const ForwardContext& context, int64_t padding_id = -1) const;

  Tensor weight;  // [rows, C]
};
TORCH_MODULE(Embedding);

// The layers' functions, for modules whose parameters have names of their own.
[[nodiscard]] Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
                            const ForwardContext& context);

}  // namespace finetune
