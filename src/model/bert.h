// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <vector>

#include "finetune/nn/attention.h"
#include "finetune/nn/post_norm.h"
#include "model/backbone.h"
#include "model/embeddings.h"

// The parts of BERT that other families of encoders share.
namespace finetune {

// Returns the options of block-sparse attention, if the configuration asks for it.
[[nodiscard]] std::optional<BlockSparseOptions> block_sparse_options(const ModelConfig& config);

// The options of a layer's second part, nn::PostNorm.
[[nodiscard]] nn::PostNormOptions post_norm_options(const ModelConfig& config, int64_t layer,
                                                    bool drops_attention_output = true);

// The names of a layer in the checkpoint; changing one breaks loading.
struct BertLayerScopes {
  nn::Scope query, key, value;
  nn::PostNormScopes post_norm;
};
// "attention.self.query", "attention.output.dense", ...
[[nodiscard]] BertLayerScopes bert_layer_scopes(const nn::Scope& layer);

// How the encoder of a family differs from BERT's.
struct BertOptions {
  const char* encoder = "encoder";
  BertLayerScopes (*layer)(const nn::Scope& layer) = bert_layer_scopes;
  bool drops_attention_output = true;
  int64_t embedding_size = 0;  // projected to hidden_size by "embeddings_project"; 0: hidden_size
  bool rotates = false;        // queries and keys, values 2 i and 2 i + 1 together
};

// One encoder layer: h = LN(x + O Attention(x)); y = LN(h + W2 f(W1 h)), with dropout before each
// sum.
class BertLayer {
 public:
  BertLayer(const nn::Scope& scope, const ModelConfig& config, int64_t layer,
            const BertOptions& options);

  nn::Value operator()(const nn::Value& x, nn::Pass& p) const {
    const nn::Linear::SharedInput shared(x, {&value_, &key_, &query_}, p);
    nn::Projections all = {.value = value_(x, shared, p),
                           .key = key_(x, shared, p),
                           .query = query_(nn::query_tokens(x, attention_, p), shared, p)};
    if (rotates_) all = rotated(std::move(all), p);
    return post_norm_(attend(std::move(all), attention_, p), x, p);
  }

 private:
  BertLayer(const BertLayerScopes& scopes, const ModelConfig& config, int64_t layer,
            const BertOptions& options);
  [[nodiscard]] nn::Projections rotated(nn::Projections all, nn::Pass& p) const;

  nn::AttentionOptions attention_;
  bool rotates_;
  nn::Linear query_, key_, value_;
  nn::PostNorm post_norm_;
};

// All layers: [B, T, C] in float32 -> [B, T, C] in the pass's precision.
class BertEncoder {
 public:
  BertEncoder(const nn::Scope& scope, const ModelConfig& config, const BertOptions& options = {});
  nn::Value operator()(nn::Value x, nn::Pass& p);
  [[nodiscard]] std::vector<nn::Rotation> rotations(const ModelInput& input,
                                                    const TokenLayout* layout) const;
  [[nodiscard]] int64_t last_layer() const { return std::ssize(layers_) - 1; }

 private:
  void announce_attention(int64_t tokens);  // logs once which kind a big_bird uses

  Weight angles_;  // roformer: a table that files have; it never gets a gradient
  std::optional<ModelConfig> rotated_;
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
  template <typename EmbeddingsType, typename... Tables>
  static std::unique_ptr<EncoderModel> make(const nn::Scope& scope, const ModelConfig& config,
                                            const std::optional<nn::Scope>& pooler,
                                            const BertOptions& options = {},
                                            const Tables&... tables) {
    ModelConfig of_embeddings = config;
    if (options.embedding_size > 0) of_embeddings.hidden_size = options.embedding_size;
    auto embeddings =
        std::make_unique<EmbeddingsType>(scope / "embeddings", of_embeddings, tables...);
    std::optional<nn::Linear> project;
    if (of_embeddings.hidden_size != config.hidden_size) {
      project.emplace(scope / "embeddings_project", of_embeddings.hidden_size, config.hidden_size);
    }
    auto model = std::make_unique<EncoderModel>(
        std::move(embeddings), BertEncoder(scope / options.encoder, config, options));
    model->project_ = std::move(project);
    if (pooler) model->pooler_.emplace(*pooler, config);
    return model;
  }
  EncoderModel(std::unique_ptr<Embeddings> embeddings, BertEncoder encoder)
      : embeddings_(std::move(embeddings)), encoder_(std::move(encoder)) {}

  nn::Value operator()(const ModelInput& input, nn::Pass& p) override {
    nn::Value x = (*embeddings_)(input, p);
    return encoder_(project_ ? (*project_)(nn::to_precision(std::move(x), p), p) : std::move(x), p);
  }
  [[nodiscard]] nn::Value pool(const nn::Value& hidden, nn::Pass& p) const override {
    return (*pooler_)(hidden, p);
  }
  [[nodiscard]] std::vector<nn::Rotation> rotations(const ModelInput& input,
                                                    const TokenLayout* layout) const override {
    return encoder_.rotations(input, layout);
  }
  [[nodiscard]] const Weight& word_embedding() const override {
    return embeddings_->word_embedding();
  }
  [[nodiscard]] std::optional<int64_t> last_layer() const override { return encoder_.last_layer(); }

 private:
  std::unique_ptr<Embeddings> embeddings_;
  std::optional<nn::Linear> project_;
  BertEncoder encoder_;
  std::optional<Pooler> pooler_;
};

}  // namespace finetune
