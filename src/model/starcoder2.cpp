// SPDX-License-Identifier: MIT
#include "model/decoder.h"

namespace finetune {
namespace {

// Lozhkov et al. 2024: layer norms, biases, and a feed-forward network without a gate.
class Starcoder2 final : public DecoderFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "starcoder2"; }
  [[nodiscard]] std::string class_prefix() const override { return "Starcoder2"; }

  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.vocab_size = 49152;
    config.hidden_size = 3072;
    config.intermediate_size = 12288;
    config.num_hidden_layers = 30;
    config.num_attention_heads = 24;
    config.decoder.num_key_value_heads = 2;
    config.max_position_embeddings = 4096;
    config.initializer_range = 0.018042;
    config.hidden_act = "gelu_pytorch_tanh";
    config.decoder.rms_norm_eps = 1e-5;
    config.bos_token_id = 50256;
    config.decoder.eos_token_ids = {50256};
    config.decoder.attention_bias = true;
    config.tie_word_embeddings = true;
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(without_fields(DecoderFamily::fields(c), {"rms_norm_eps"}),
                       {{"hidden_act", &c.hidden_act},
                        {"norm_epsilon", &c.decoder.rms_norm_eps, 0.0, 1.0},
                        {"sliding_window", &c.decoder.sliding_window, 1, kMostPositions},
                        {"residual_dropout", &c.decoder.resid_pdrop, 0.0, 0.99},
                        {"embedding_dropout", &c.decoder.embd_pdrop, 0.0, 0.99},
                        {"use_bias", &c.decoder.attention_bias}});
  }

 protected:
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = decoder_options(config);
    options.has_layer_norms = true;
    options.ungated_up = "c_fc";
    options.ungated_down = "c_proj";
    options.feed_forward_bias = config.decoder.attention_bias;
    drop_residuals(config.decoder.resid_pdrop, options);
    options.embedding_dropout = config.decoder.embd_pdrop;
    slide_every_layer(config, options);
    return options;
  }
};

}  // namespace

const Architecture& starcoder2_architecture() {
  static const Starcoder2 kStarcoder2;
  return kStarcoder2;
}

}  // namespace finetune
