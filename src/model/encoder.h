// SPDX-License-Identifier: MIT
#pragma once

#include "model/activation.h"
#include "model/attention.h"
#include "model/embeddings.h"
#include "model/encoder_stack.h"

namespace finetune {

// GELU(W x), or another activation that the configuration names.
class IntermediateImpl : public nn::Module {
 public:
  explicit IntermediateImpl(const ModelConfig& config);
  Tensor forward(const Tensor& x, const ForwardContext& context);  // [B, T, C] -> [B, T, 4C]
  [[nodiscard]] const Linear& dense() const { return dense_; }

 private:
  Activation activation_;
  Linear dense_;
};
TORCH_MODULE(Intermediate);

// The encoder layer of BERT and its kin: h = LN(x + Attention(x)); y = LN(h + MLP(h)).
// Submodule names are the checkpoint's parameter names; renaming one breaks loading.
class EncoderLayerImpl : public nn::Module {
 public:
  EncoderLayerImpl(const ModelConfig& config, int64_t layer);

  Tensor forward(const Tensor& x, const ForwardContext& context) {
    const Tensor h = attention_(x, context);
    return output_(intermediate_(h, context), h, context);
  }
  // The same layer for encoder_layer_forward() and its backward pass.
  [[nodiscard]] const EncoderLayerOptions& options() const { return options_; }
  [[nodiscard]] const EncoderLayerWeights& weights() const { return weights_; }

 private:
  EncoderLayerOptions options_;
  EncoderLayerWeights weights_;
  Attention attention_;
  Intermediate intermediate_;
  AddAndNorm output_;
};
TORCH_MODULE(EncoderLayer);

class EncoderImpl : public nn::Module {
 public:
  explicit EncoderImpl(const ModelConfig& config);
  Tensor forward(const Tensor& x, const ForwardContext& context);  // [B, T, C] -> [B, T, C]

 private:
  void announce_attention(int64_t tokens);  // which of the two a big_bird takes: each once

  std::vector<EncoderLayer> layers_;
  std::vector<StackedLayer> stack_;
  std::optional<BlockSparseOptions> block_sparse_;
  bool told_sparse_ = false;
  bool told_full_ = false;
};
TORCH_MODULE(Encoder);

// What a classifier of whole sequences looks at.
class PoolerImpl : public nn::Module {
 public:
  // [B, T, C] -> [B, C]
  virtual Tensor forward(const Tensor& hidden, const ForwardContext& context) = 0;
};

// Embeddings and encoder under their names in the checkpoint, and a pooler where the model has one:
// BertModel, RobertaModel, BigBirdModel.
class EncoderModelImpl final : public nn::Module {
 public:
  EncoderModelImpl(const ModelConfig& config, std::shared_ptr<EmbeddingsImpl> embeddings,
                   std::shared_ptr<PoolerImpl> pooler);

  // -> [B, T, C], with the context's layout [1, N, C]
  Tensor forward(const ModelInput& input, const ForwardContext& context) {
    return encoder_(embeddings_->forward(input, context), context);
  }
  Tensor pool(const Tensor& hidden, const ForwardContext& context) {  // Requires: a pooler
    return pooler_->forward(hidden, context);
  }
  [[nodiscard]] const Tensor& word_embedding() const { return embeddings_->word_embedding(); }

 private:
  std::shared_ptr<EmbeddingsImpl> embeddings_;
  Encoder encoder_;
  std::shared_ptr<PoolerImpl> pooler_;
};

}  // namespace finetune
