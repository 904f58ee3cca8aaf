// SPDX-License-Identifier: MIT
#include "model/decoder.h"

namespace finetune {
namespace {

// GLM-4-0414: norms before and after sublayers; half of each head rotates, by neighbours.
class Glm4 final : public DecoderFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "glm4"; }
  [[nodiscard]] std::string class_prefix() const override { return "Glm4"; }

  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.vocab_size = 151552;
    config.hidden_size = 4096;
    config.intermediate_size = 13696;
    config.num_hidden_layers = 40;
    config.num_attention_heads = 32;
    config.decoder.num_key_value_heads = 2;
    config.decoder.head_dim = 128;
    config.max_position_embeddings = 131072;
    config.decoder.rms_norm_eps = 0.00000015625;
    config.bos_token_id.reset();
    config.decoder.pad_token_id = 151329;
    config.decoder.eos_token_ids = {151329, 151336, 151338};
    config.decoder.attention_bias = true;
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(DecoderFamily::fields(c), {{"hidden_act", &c.hidden_act},
                                                  {"head_dim", &c.decoder.head_dim, 1, 4096},
                                                  {"attention_bias", &c.decoder.attention_bias}});
  }

 protected:
  [[nodiscard]] std::optional<double> rotated_share() const override { return 0.5; }
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = decoder_options(config);
    options.norms.after_attention = "post_self_attn_layernorm";
    options.norms.after_feed_forward = "post_mlp_layernorm";
    options.norms.before_come_first = true;
    options.fuses_gate_up = true;
    options.output_bias = false;
    options.rotates_neighbours = true;
    return options;
  }
};

}  // namespace

const Architecture& glm4_architecture() {
  static const Glm4 kGlm4;
  return kGlm4;
}

}  // namespace finetune
