// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "finetune/kernels/encoder_layer.h"
#include "model/layers.h"

namespace finetune {

// Where the configuration asks for block-sparse attention: which one.
[[nodiscard]] std::optional<BlockSparseOptions> block_sparse_options(const ModelConfig& config);

// Attention(x) = softmax(Q K^T / sqrt(D) + mask) V, in H heads (Vaswani et al. 2017, eq. 1), or
// over blocks alone, which a short sequence has too few of.
class SelfAttentionImpl : public nn::Module {
 public:
  SelfAttentionImpl(const ModelConfig& config, int64_t layer);

  Tensor forward(const Tensor& x, const ForwardContext& context);  // [B, T, C] -> [B, T, C]
  void name_weights(EncoderLayerWeights& weights) const;

 private:
  int64_t layer_;
  int64_t heads_;
  double dropout_;
  std::optional<BlockSparseOptions> block_sparse_;
  Linear query_, key_, value_;
};
TORCH_MODULE(SelfAttention);

// y = LN(residual + Dropout(W x)); stands behind attention and behind the feed-forward part.
class AddAndNormImpl : public nn::Module {
 public:
  AddAndNormImpl(const ModelConfig& config, int64_t input_size, int64_t layer, DropoutSite site);

  Tensor forward(const Tensor& x, const Tensor& residual, const ForwardContext& context);
  [[nodiscard]] const Linear& dense() const { return dense_; }
  [[nodiscard]] const LayerNorm& layer_norm() const { return layer_norm_; }

 private:
  int64_t layer_;
  DropoutSite site_;
  double dropout_;
  Linear dense_;
  LayerNorm layer_norm_;
};
TORCH_MODULE(AddAndNorm);

// h = LN(x + Dropout(W Attention(x)))
class AttentionImpl : public nn::Module {
 public:
  AttentionImpl(const ModelConfig& config, int64_t layer);

  Tensor forward(const Tensor& x, const ForwardContext& context) {
    return output_(self_(x, context), x, context);
  }
  void name_weights(EncoderLayerWeights& weights) const;

 private:
  SelfAttention self_;
  AddAndNorm output_;
};
TORCH_MODULE(Attention);

}  // namespace finetune
