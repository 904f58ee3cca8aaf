// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/model/model_config.h"
#include "model/forward_context.h"
#include "model/nn.h"

namespace finetune {

// e = Dropout(LN(word[id] + type[0] + position[p])); p counts the tokens that are not padding and
// begins behind the padding's own position (fairseq's make_positions).
class RobertaEmbeddingsImpl : public nn::Module {
 public:
  explicit RobertaEmbeddingsImpl(const ModelConfig& config);

  Tensor forward(const Tensor& input_ids, const ForwardContext& context);  // [B, T] -> [B, T, C]

  [[nodiscard]] const Tensor& word_embedding() const { return word_embeddings_->weight; }  // [V, C]

 private:
  int64_t padding_id_;
  double dropout_;
  nn::Embedding word_embeddings_, token_type_embeddings_;
  nn::LayerNorm layer_norm_;
  nn::Embedding position_embeddings_;
};
TORCH_MODULE(RobertaEmbeddings);

}  // namespace finetune
