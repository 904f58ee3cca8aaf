// SPDX-License-Identifier: MIT
#include "model/decoder.h"

namespace finetune {
namespace {

// Kyutai 2025: Llama whose heads rotate by neighbours.
class Helium final : public DecoderFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "helium"; }
  [[nodiscard]] std::string class_prefix() const override { return "Helium"; }

  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.vocab_size = 48000;
    config.hidden_size = 2560;
    config.intermediate_size = 7040;
    config.num_hidden_layers = 24;
    config.num_attention_heads = 20;
    config.decoder.num_key_value_heads = 20;
    config.max_position_embeddings = 4096;
    config.decoder.rms_norm_eps = 1e-8;
    config.decoder.pad_token_id = 3;
    config.decoder.rope_parameters[""].rope_theta = 100000.0;
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(DecoderFamily::fields(c), {{"hidden_act", &c.hidden_act},
                                                  {"head_dim", &c.decoder.head_dim, 1, 4096},
                                                  {"attention_bias", &c.decoder.attention_bias},
                                                  {"mlp_bias", &c.decoder.mlp_bias}});
  }

  void complete(ModelConfig& config, const Refuse& refuse) const override {
    DecoderFamily::complete(config, refuse);
    check_equal("head_dim", config.decoder.head_dim, "hidden_size / num_attention_heads =",
                config.hidden_size / config.num_attention_heads, refuse);
  }

 protected:
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = decoder_options(config);
    options.output_bias = false;
    options.rotates_neighbours = true;
    return options;
  }
};

}  // namespace

const Architecture& helium_architecture() {
  static const Helium kHelium;
  return kHelium;
}

}  // namespace finetune
