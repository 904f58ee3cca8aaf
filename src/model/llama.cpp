// SPDX-License-Identifier: MIT
#include "model/decoder.h"

namespace finetune {
namespace {

// Touvron et al. 2023; Grattafiori et al. 2024
class Llama final : public DecoderFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "llama"; }
  [[nodiscard]] std::string class_prefix() const override { return "Llama"; }

  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.vocab_size = 32000;
    config.hidden_size = 4096;
    config.intermediate_size = 11008;
    config.num_hidden_layers = 32;
    config.num_attention_heads = 32;
    config.max_position_embeddings = 2048;
    config.other_fields = R"({"pretraining_tp": 1})";
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(DecoderFamily::fields(c), {{"hidden_act", &c.hidden_act},
                                                  {"head_dim", &c.decoder.head_dim, 1, 4096},
                                                  {"attention_bias", &c.decoder.attention_bias},
                                                  {"mlp_bias", &c.decoder.mlp_bias}});
  }
};

}  // namespace

const Architecture& llama_architecture() {
  static const Llama kLlama;
  return kLlama;
}

}  // namespace finetune
