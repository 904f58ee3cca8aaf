// SPDX-License-Identifier: MIT
#include "model/decoder.h"

namespace finetune {
namespace {

// Li et al. 2023, Phi-1 and Phi-2: attention and feed-forward network read one norm.
class Phi final : public DecoderFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "phi"; }
  [[nodiscard]] std::string class_prefix() const override { return "Phi"; }

  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.vocab_size = 51200;
    config.hidden_size = 2048;
    config.intermediate_size = 8192;
    config.num_hidden_layers = 24;
    config.num_attention_heads = 32;
    config.max_position_embeddings = 2048;
    config.hidden_act = "gelu_new";
    config.decoder.rms_norm_eps = 1e-5;
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(without_fields(DecoderFamily::fields(c), {"rms_norm_eps"}),
                       {{"hidden_act", &c.hidden_act},
                        {"layer_norm_eps", &c.decoder.rms_norm_eps, 0.0, 1.0},
                        {"resid_pdrop", &c.decoder.resid_pdrop, 0.0, 0.99},
                        {"embd_pdrop", &c.decoder.embd_pdrop, 0.0, 0.99},
                        {"qk_layernorm", &c.decoder.qk_layernorm}});
  }

  void complete(ModelConfig& config, const Refuse& refuse) const override {
    DecoderFamily::complete(config, refuse);
    refuse_query_key_norms(config, refuse);
  }

 protected:
  [[nodiscard]] std::optional<double> rotated_share() const override { return 0.5; }
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = decoder_options(config);
    options.names.output = "dense";
    options.names.last_norm = "final_layernorm";
    options.norms.before_feed_forward = nullptr;
    options.is_parallel = true;
    options.has_layer_norms = true;
    options.qkv_bias = options.output_bias = options.feed_forward_bias = true;
    options.lm_head_bias = true;
    options.ungated_up = "fc1";
    options.ungated_down = "fc2";
    options.embedding_dropout = config.decoder.embd_pdrop;
    drop_residuals(config.decoder.resid_pdrop, options);
    return options;
  }
};

}  // namespace

const Architecture& phi_architecture() {
  static const Phi kPhi;
  return kPhi;
}

}  // namespace finetune
