// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/model/model.h"
#include "model/layers.h"

namespace finetune {

// Tokens, their types and their places as vectors. A family's own class says where places begin
// and in which order the vectors are normalised and dropped.
class EmbeddingsImpl : public nn::Module {
 public:
  // input_ids [B, T] -> [B, T, C], with the context's layout [1, N, C]
  virtual Tensor forward(const ModelInput& input, const ForwardContext& context) = 0;
  [[nodiscard]] virtual const Tensor& word_embedding() const = 0;  // [V, C]
};

// e = Dropout(LN(word[id] + type[t] + position[p])); p counts the tokens that are not padding and
// begins behind the padding's own position (fairseq's make_positions).
class RobertaEmbeddingsImpl final : public EmbeddingsImpl {
 public:
  explicit RobertaEmbeddingsImpl(const ModelConfig& config);
  Tensor forward(const ModelInput& input, const ForwardContext& context) override;
  [[nodiscard]] const Tensor& word_embedding() const override { return word_embeddings_->weight; }

 private:
  int64_t padding_id_;
  double dropout_;
  Embedding word_embeddings_, token_type_embeddings_;
  LayerNorm layer_norm_;
  Embedding position_embeddings_;
};

// e = Dropout(LN(word[id] + type[t] + position[p])); p counts every token from 0 on.
class BertEmbeddingsImpl : public EmbeddingsImpl {
 public:
  explicit BertEmbeddingsImpl(const ModelConfig& config);
  Tensor forward(const ModelInput& input, const ForwardContext& context) override;
  [[nodiscard]] const Tensor& word_embedding() const override { return word_embeddings_->weight; }

 protected:
  // [B, T, C], before LN
  Tensor sum(const ModelInput& input, double word_scale, const ForwardContext& context);
  Tensor normalize(const Tensor& x, const ForwardContext& context) {
    return layer_norm_(x, context);
  }
  [[nodiscard]] double dropout() const { return dropout_; }

 private:
  int64_t padding_id_;
  double dropout_;
  Embedding word_embeddings_, position_embeddings_, token_type_embeddings_;
  LayerNorm layer_norm_;
};

// e = LN(Dropout(s word[id] + type[t] + position[p])) with s = sqrt(C) where the configuration asks
// for it, else 1. Unlike BERT's, the dropout comes first.
class BigBirdEmbeddingsImpl final : public BertEmbeddingsImpl {
 public:
  explicit BigBirdEmbeddingsImpl(const ModelConfig& config);
  Tensor forward(const ModelInput& input, const ForwardContext& context) override;

 private:
  double word_scale_;
};

}  // namespace finetune
