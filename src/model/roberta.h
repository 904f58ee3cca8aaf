// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/model/model.h"
#include "model/embeddings.h"
#include "model/encoder.h"

namespace finetune {

// RobertaModel without a pooler: embeddings and encoder (Liu et al. 2019).
class RobertaEncoderModelImpl : public nn::Module {
 public:
  explicit RobertaEncoderModelImpl(const ModelConfig& config);

  Tensor forward(const Tensor& input_ids, const ForwardContext& context) {
    return encoder_(embeddings_(input_ids, context), context);
  }
  [[nodiscard]] const Tensor& word_embedding() const { return embeddings_->word_embedding(); }

 private:
  RobertaEmbeddings embeddings_;
  Encoder encoder_;
};
TORCH_MODULE(RobertaEncoderModel);

// logits = E LN(GELU(W x)) + b with E the word embedding itself (tied) or a matrix of its own.
class RobertaLmHeadImpl : public nn::Module {
 public:
  explicit RobertaLmHeadImpl(const ModelConfig& config);

  // x [N, C], embedding [V, C] -> [N, V]
  Tensor forward(const Tensor& x, const Tensor& embedding);

 private:
  Tensor bias_;  // [V]
  nn::Linear dense_;
  nn::LayerNorm layer_norm_;
  nn::Linear decoder_{nullptr};
};
TORCH_MODULE(RobertaLmHead);

class RobertaForMaskedLmImpl : public nn::Module {
 public:
  explicit RobertaForMaskedLmImpl(const ModelConfig& config);

  // Hidden states of the predicted positions go through the head, the others do not.
  Tensor forward(const ModelInput& input, const Tensor& positions);

 private:
  RobertaEncoderModel roberta_;
  RobertaLmHead lm_head_;
};
TORCH_MODULE(RobertaForMaskedLm);

}  // namespace finetune
