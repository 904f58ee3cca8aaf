// SPDX-License-Identifier: MIT
#include "model/decoder.h"

namespace finetune {
namespace {

// ByteDance Seed 2025: Llama with biases of queries, keys and values, and dropout of sublayers.
class SeedOss final : public DecoderFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "seed_oss"; }
  [[nodiscard]] std::string class_prefix() const override { return "SeedOss"; }

  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.vocab_size = 155136;
    config.hidden_size = 4096;
    config.intermediate_size = 27648;
    config.num_hidden_layers = 64;
    config.num_attention_heads = 80;
    config.decoder.num_key_value_heads = 8;
    config.decoder.head_dim = 128;
    config.max_position_embeddings = 524288;
    config.bos_token_id = 0;
    config.decoder.pad_token_id = 1;
    config.decoder.attention_bias = true;
    config.decoder.attention_dropout = config.decoder.resid_pdrop = 0.1;
    config.other_fields = R"({"pretraining_tp": 1})";
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(DecoderFamily::fields(c),
                       {{"hidden_act", &c.hidden_act},
                        {"head_dim", &c.decoder.head_dim, 1, 4096},
                        {"attention_bias", &c.decoder.attention_bias},
                        {"attention_out_bias", &c.decoder.attention_out_bias},
                        {"mlp_bias", &c.decoder.mlp_bias},
                        {"residual_dropout", &c.decoder.resid_pdrop, 0.0, 0.99}});
  }

 protected:
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = decoder_options(config);
    options.output_bias = config.decoder.attention_out_bias;
    drop_residuals(config.decoder.resid_pdrop, options);
    return options;
  }
};

}  // namespace

const Architecture& seed_oss_architecture() {
  static const SeedOss kSeedOss;
  return kSeedOss;
}

}  // namespace finetune
