// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <vector>

#include "finetune/nn/attention.h"
#include "finetune/nn/post_norm.h"
#include "model/backbone.h"
#include "model/embeddings.h"

// The parts of BERT that RoBERTa and BigBird share.
namespace finetune {

// Returns the options of block-sparse attention, if the configuration asks for it.
[[nodiscard]] std::optional<BlockSparseOptions> block_sparse_options(const ModelConfig& config);

// The options of a layer's second part, nn::PostNorm.
[[nodiscard]] nn::PostNormOptions post_norm_options(const ModelConfig& config, int64_t layer);

// One encoder layer: h = LN(x + O Attention(x)); y = LN(h + W2 f(W1 h)), with dropout before each
// sum. Scopes are the names in the checkpoint; renaming one breaks loading.
class BertLayer {
 public:
  BertLayer(const nn::Scope& scope, const ModelConfig& config, int64_t layer);

  nn::Value operator()(const nn::Value& x, nn::Pass& p) const {
    return post_norm_(
        attend({.value = value_(x, p), .key = key_(x, p), .query = query_(x, p)}, attention_, p), x,
        p);
  }

 private:
  nn::AttentionOptions attention_;
  nn::Linear query_, key_, value_;
  nn::PostNorm post_norm_;
};

// All layers: [B, T, C] in float32 -> [B, T, C] in the pass's precision.
class BertEncoder {
 public:
  BertEncoder(const nn::Scope& scope, const ModelConfig& config);
  nn::Value operator()(nn::Value x, nn::Pass& p);

 private:
  void announce_attention(int64_t tokens);  // logs once which kind a big_bird uses

  std::vector<BertLayer> layers_;
  std::optional<BlockSparseOptions> block_sparse_;
  bool reported_sparse_ = false;
  bool reported_full_ = false;
};

// Computes the input of a classifier of sequences, [B, T, C] -> [B, C]: pooled = tanh(W first token
// + b). BERT's scope is "pooler.dense", BigBird's "pooler".
class Pooler {
 public:
  Pooler(const nn::Scope& scope, const ModelConfig& config);
  nn::Value operator()(const nn::Value& hidden, nn::Pass& p) const;

 private:
  nn::Linear dense_;
};

// Embeddings and encoder under their names in the checkpoint, and a pooler if the model has one:
// BertModel, RobertaModel, BigBirdModel.
class EncoderModel final : public Backbone {
 public:
  // Parts are created in the order of transformers' parameters: embeddings, encoder, pooler.
  template <typename EmbeddingsType>
  static std::unique_ptr<EncoderModel> make(const nn::Scope& scope, const ModelConfig& config,
                                            const std::optional<nn::Scope>& pooler) {
    auto embeddings = std::make_unique<EmbeddingsType>(scope / "embeddings", config);
    auto model = std::make_unique<EncoderModel>(std::move(embeddings),
                                                BertEncoder(scope / "encoder", config));
    if (pooler) model->pooler_.emplace(*pooler, config);
    return model;
  }
  EncoderModel(std::unique_ptr<Embeddings> embeddings, BertEncoder encoder)
      : embeddings_(std::move(embeddings)), encoder_(std::move(encoder)) {}

  nn::Value operator()(const ModelInput& input, nn::Pass& p) override {
    return encoder_((*embeddings_)(input, p), p);
  }
  [[nodiscard]] nn::Value pool(const nn::Value& hidden, nn::Pass& p) const override {
    return (*pooler_)(hidden, p);
  }
  [[nodiscard]] const Weight& word_embedding() const override {
    return embeddings_->word_embedding();
  }

 private:
  std::unique_ptr<Embeddings> embeddings_;
  BertEncoder encoder_;
  std::optional<Pooler> pooler_;
};

}  // namespace finetune
