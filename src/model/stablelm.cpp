// SPDX-License-Identifier: MIT
#include "model/decoder.h"

namespace finetune {
namespace {

// Bellagente et al. 2024: Llama with layer norms, and a quarter of each head rotates.
class StableLm final : public DecoderFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "stablelm"; }
  [[nodiscard]] std::string class_prefix() const override { return "StableLm"; }

  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.vocab_size = 50304;
    config.hidden_size = 2560;
    config.intermediate_size = 6912;
    config.num_hidden_layers = 32;
    config.num_attention_heads = config.decoder.num_key_value_heads.emplace(32);
    config.max_position_embeddings = 4096;
    config.bos_token_id = 0;
    config.decoder.eos_token_ids = {0};
    config.decoder.rms_norm_eps = 1e-5;
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(without_fields(DecoderFamily::fields(c), {"rms_norm_eps"}),
                       {{"hidden_act", &c.hidden_act},
                        {"layer_norm_eps", &c.decoder.rms_norm_eps, 0.0, 1.0},
                        {"hidden_dropout", &c.decoder.resid_pdrop, 0.0, 0.99},
                        {"use_qkv_bias", &c.decoder.attention_bias},
                        {"qk_layernorm", &c.decoder.qk_layernorm},
                        {"use_parallel_residual", &c.decoder.use_parallel_residual}});
  }

  void complete(ModelConfig& config, const Refuse& refuse) const override {
    DecoderFamily::complete(config, refuse);
    refuse_query_key_norms(config, refuse);
  }

 protected:
  [[nodiscard]] std::optional<double> rotated_share() const override { return 0.25; }
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = decoder_options(config);
    options.has_layer_norms = true;
    options.output_bias = false;
    options.feed_forward_dropout = config.decoder.resid_pdrop;
    options.is_parallel = config.decoder.use_parallel_residual;
    if (options.is_parallel) options.norms.before_feed_forward = nullptr;
    return options;
  }
};

}  // namespace

const Architecture& stablelm_architecture() {
  static const StableLm kStableLm;
  return kStableLm;
}

}  // namespace finetune
