// SPDX-License-Identifier: MIT
#include "model/decoder.h"

namespace finetune {
namespace {

// Abdin et al. 2024: one matrix for queries, keys and values, one for gate and up.
class Phi3 final : public DecoderFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "phi3"; }
  [[nodiscard]] std::string class_prefix() const override { return "Phi3"; }

  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.vocab_size = 32064;
    config.hidden_size = 3072;
    config.intermediate_size = 8192;
    config.num_hidden_layers = 32;
    config.num_attention_heads = 32;
    config.max_position_embeddings = 4096;
    config.decoder.rms_norm_eps = 1e-5;
    config.decoder.pad_token_id = 32000;
    config.decoder.eos_token_ids = {32000};
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(DecoderFamily::fields(c),
                       {{"hidden_act", &c.hidden_act},
                        {"sliding_window", &c.decoder.sliding_window, 1, kMostPositions},
                        {"original_max_position_embeddings",
                         &c.decoder.original_max_position_embeddings, 1, kMostPositions},
                        {"resid_pdrop", &c.decoder.resid_pdrop, 0.0, 0.99},
                        {"embd_pdrop", &c.decoder.embd_pdrop, 0.0, 0.99}});
  }

  void complete(ModelConfig& config, const Refuse& refuse) const override {
    for (auto& [layers, rope] : config.decoder.rope_parameters) {
      if (rope.rope_type == "yarn") rope.rope_type = "longrope";  // the name in early files
      if (rope.rope_type == "longrope") {
        rope.original_max_position_embeddings = config.decoder.original_max_position_embeddings;
      } else if (rope.rope_type != "default") {
        refuse("rope_parameters: rope_type '" + rope.rope_type +
               "' is none of phi3's; these are default, longrope");
      }
    }
    DecoderFamily::complete(config, refuse);
  }

 protected:
  [[nodiscard]] std::optional<double> rotated_share() const override { return 1.0; }
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = decoder_options(config);
    options.fuses_qkv = options.fuses_gate_up = true;
    drop_residuals(config.decoder.resid_pdrop, options);
    slide_every_layer(config, options);
    return options;
  }
};

}  // namespace

const Architecture& phi3_architecture() {
  static const Phi3 kPhi3;
  return kPhi3;
}

}  // namespace finetune
