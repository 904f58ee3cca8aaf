// SPDX-License-Identifier: MIT
#include "model/decoder.h"

namespace finetune {
namespace {

// Baidu 2025: Llama whose heads rotate by neighbours.
class Ernie45 final : public DecoderFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "ernie4_5"; }
  [[nodiscard]] std::string class_prefix() const override { return "Ernie4_5"; }

  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.vocab_size = 103424;
    config.hidden_size = 1024;
    config.intermediate_size = 3072;
    config.num_hidden_layers = 18;
    config.num_attention_heads = 16;
    config.decoder.num_key_value_heads = 2;
    config.decoder.head_dim = 128;
    config.max_position_embeddings = 131072;
    config.decoder.rms_norm_eps = 1e-5;
    config.decoder.pad_token_id = 0;
    config.decoder.rope_parameters[""].rope_theta = 500000.0;
    config.tie_word_embeddings = true;
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(without_fields(DecoderFamily::fields(c), {"attention_dropout"}),
                       {{"hidden_act", &c.hidden_act},
                        {"head_dim", &c.decoder.head_dim, 1, 4096},
                        {"use_bias", &c.decoder.attention_bias}});
  }

 protected:
  [[nodiscard]] bool has_sequence_classifier() const override { return false; }
  [[nodiscard]] bool has_token_classifier() const override { return false; }
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = decoder_options(config);
    options.feed_forward_bias = config.decoder.attention_bias;
    options.rotates_neighbours = true;
    return options;
  }
};

}  // namespace

const Architecture& ernie4_5_architecture() {
  static const Ernie45 kErnie45;
  return kErnie45;
}

}  // namespace finetune
