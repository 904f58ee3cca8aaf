// SPDX-License-Identifier: MIT
#include "model/decoder.h"

namespace finetune {
namespace {

// Muennighoff et al. 2024: Llama's block with norms of queries and keys over all heads, and a
// mixture of experts in each layer.
class Olmoe final : public DecoderFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "olmoe"; }
  [[nodiscard]] std::string class_prefix() const override { return "Olmoe"; }

  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.vocab_size = 50304;
    config.hidden_size = 2048;
    config.intermediate_size = 2048;
    config.num_hidden_layers = 16;
    config.num_attention_heads = 16;
    config.max_position_embeddings = 4096;
    config.bos_token_id.reset();
    config.decoder.rms_norm_eps = 1e-5;
    config.decoder.pad_token_id = 1;
    config.decoder.eos_token_ids = {50279};
    config.decoder.num_experts = 64;
    config.decoder.router_aux_loss_coef = 0.01;
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    ConfigFields fields = without_fields(DecoderFamily::fields(c), {"classifier_dropout"});
    add_expert_fields(fields, c);
    return with_fields(std::move(fields), {{"num_experts", &c.decoder.num_experts, 1, 4096},
                                           {"hidden_act", &c.hidden_act},
                                           {"attention_bias", &c.decoder.attention_bias},
                                           {"clip_qkv", &c.decoder.clip_qkv, 0.0, 1e6}});
  }

  void complete(ModelConfig& config, const Refuse& refuse) const override {
    if (config.decoder.clip_qkv) refuse("clip_qkv is not available; write null");
    check_experts(config, refuse);
    DecoderFamily::complete(config, refuse);
  }

 protected:
  [[nodiscard]] bool has_sequence_classifier() const override { return false; }
  [[nodiscard]] bool has_token_classifier() const override { return false; }
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = decoder_options(config);
    options.query_key_norm = DecoderOptions::QueryKeyNorm::kOfRows;
    options.experts = experts_of(config, config.intermediate_size);
    return options;
  }
};

}  // namespace

const Architecture& olmoe_architecture() {
  static const Olmoe kOlmoe;
  return kOlmoe;
}

}  // namespace finetune
