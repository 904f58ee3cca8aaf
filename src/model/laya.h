// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "finetune/nn/attention.h"
#include "finetune/nn/embedding.h"
#include "finetune/nn/feed_forward.h"
#include "finetune/nn/norm.h"
#include "model/backbone.h"
#include "model/config_fields.h"
#include "model/heads.h"

// Laya's DecisionModel (laya 0.4, laya/common.py): an encoder, torch's TransformerEncoder over all
// of its tokens, and a score of each [MASK].
namespace finetune {

// The name of the encoder in it.
inline constexpr char kLayaEncoder[] = "encoder";

// A pre-norm layer, torch's TransformerEncoderLayer with norm_first: h = x + O Attention(LN(x)), y
// = h + W2 relu(W1 LN(h)), with dropout before each sum and after the activation.
class LayaLayer {
 public:
  // `layer` is its index in the head.
  LayaLayer(const nn::Scope& scope, const ModelConfig& config, int64_t layer);
  nn::Value operator()(const nn::Value& x, nn::Pass& p) const;

 private:
  [[nodiscard]] nn::Value dropped(nn::Value x, DropoutSite site, nn::Pass& p) const;

  nn::AttentionOptions attention_;
  nn::FusedProjections projections_;
  nn::Linear output_;
  nn::DenseActivation up_;
  nn::Linear down_;
  nn::LayerNorm attention_norm_, feed_forward_norm_;
};

// The hidden states that the scores are made of: those of `encoder`, with the embedding of the
// question's type, through "head.layers".
class LayaBackbone final : public Backbone {
 public:
  // `root` is the scope of the model.
  LayaBackbone(std::unique_ptr<Backbone> encoder, const nn::Scope& root, const ModelConfig& config);
  nn::Value operator()(const ModelInput& input, nn::Pass& p) override;
  [[nodiscard]] std::vector<nn::Rotation> rotations(const ModelInput& input,
                                                    const TokenLayout* layout) const override {
    return encoder_->rotations(input, layout);
  }
  [[nodiscard]] const Weight& word_embedding() const override { return encoder_->word_embedding(); }
  [[nodiscard]] std::optional<int64_t> last_layer() const override;

 private:
  std::unique_ptr<Backbone> encoder_;
  int64_t first_layer_;  // the number of the head's first one
  std::vector<LayaLayer> layers_;
  nn::Embedding types_;
};

// scores = W2 gelu(W1 LN(h) + b1) + b2 of the tokens that are read, [N, 1]: "scorer". "act_head"
// and "temperature", which no loss reads, stay as they are.
class LayaHead final : public ModelHead {
 public:
  LayaHead(const nn::Scope& root, const ModelConfig& config);
  nn::Value operator()(const HeadInput& in, nn::Pass& p) const override;

 private:
  nn::LayerNorm norm_;
  nn::DenseActivation dense_;
  nn::Linear score_;
  nn::Linear act_dense_, act_;
  Weight temperature_;  // [3]
};

// Throws Error(kConfig) for a model that has no such head.
void check_laya(const ModelConfig& config);

// The fields that rl_agent_config.json and our config.json have; `dropout` is of finetune alone.
[[nodiscard]] ConfigFields laya_fields(LayaConfig& laya);

// Reads rl_agent_config.json. Throws Error(kData).
[[nodiscard]] LayaConfig parse_laya_config(const nlohmann::ordered_json& json,
                                           const std::string& where);

}  // namespace finetune
