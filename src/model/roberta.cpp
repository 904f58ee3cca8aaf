// SPDX-License-Identifier: MIT
#include "model/roberta.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>

namespace finetune {

RobertaEncoderModelImpl::RobertaEncoderModelImpl(const ModelConfig& config)
    : embeddings_(register_module("embeddings", RobertaEmbeddings(config))),
      encoder_(register_module("encoder", Encoder(config))) {}

RobertaLmHeadImpl::RobertaLmHeadImpl(const ModelConfig& config)
    : bias_(register_parameter("bias", at::zeros({config.vocab_size}))),
      dense_(register_module("dense", nn::Linear(config.hidden_size, config.hidden_size))),
      layer_norm_(register_module(
          "layer_norm",
          nn::LayerNorm(nn::LayerNormOptions({config.hidden_size}).eps(config.layer_norm_eps)))) {
  if (!config.tie_word_embeddings) {
    decoder_ = register_module(
        "decoder",
        nn::Linear(nn::LinearOptions(config.hidden_size, config.vocab_size).bias(false)));
  }
}

Tensor RobertaLmHeadImpl::forward(const Tensor& x, const Tensor& embedding) {
  // Always the exact GELU, whatever hidden_act says: transformers' head does so too.
  const Tensor h = layer_norm_(at::gelu(dense_(x)));
  return at::linear(h, decoder_.is_empty() ? embedding : decoder_->weight, bias_);
}

RobertaForMaskedLmImpl::RobertaForMaskedLmImpl(const ModelConfig& config)
    : roberta_(register_module("roberta", RobertaEncoderModel(config))),
      lm_head_(register_module("lm_head", RobertaLmHead(config))) {}

Tensor RobertaForMaskedLmImpl::forward(const ModelInput& input, const Tensor& positions) {
  ForwardContext context{.mask = {}, .dropout = input.dropout};
  if (input.attention_mask.defined()) {
    context.mask = input.attention_mask.unsqueeze(1).unsqueeze(1);  // [B, 1, 1, T]
  }
  const Tensor hidden = roberta_(input.input_ids, context);                  // [B, T, C]
  const Tensor predicted = hidden.flatten(0, 1).index_select(0, positions);  // [N, C]
  return lm_head_(predicted, roberta_->word_embedding());
}

}  // namespace finetune
