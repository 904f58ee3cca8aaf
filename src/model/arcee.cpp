// SPDX-License-Identifier: MIT
#include "model/decoder.h"

namespace finetune {
namespace {

// Arcee AI 2025: Llama with a squared ReLU instead of the gate.
class Arcee final : public DecoderFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "arcee"; }
  [[nodiscard]] std::string class_prefix() const override { return "Arcee"; }

  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.vocab_size = 32000;
    config.hidden_size = 2560;
    config.intermediate_size = 18432;
    config.num_hidden_layers = 32;
    config.num_attention_heads = 32;
    config.max_position_embeddings = 4096;
    config.hidden_act = "relu2";
    config.decoder.rms_norm_eps = 1e-5;
    config.bos_token_id = 128000;
    config.decoder.eos_token_ids = {128001};
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(DecoderFamily::fields(c), {{"hidden_act", &c.hidden_act},
                                                  {"head_dim", &c.decoder.head_dim, 1, 4096},
                                                  {"attention_bias", &c.decoder.attention_bias},
                                                  {"mlp_bias", &c.decoder.mlp_bias}});
  }

 protected:
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = decoder_options(config);
    options.ungated_up = "up_proj";
    options.ungated_down = "down_proj";
    return options;
  }
};

}  // namespace

const Architecture& arcee_architecture() {
  static const Arcee kArcee;
  return kArcee;
}

}  // namespace finetune
