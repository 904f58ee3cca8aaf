// SPDX-License-Identifier: MIT
#include <cmath>

#include "model/decoder.h"

namespace finetune {
namespace {

// Karpathy 2025: norms without weights, also of the embeddings, and of queries and keys after a
// rotation by the negative angle.
class NanoChat final : public DecoderFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "nanochat"; }
  [[nodiscard]] std::string class_prefix() const override { return "NanoChat"; }

  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.vocab_size = 50304;
    config.hidden_size = 768;
    config.intermediate_size = 8192;
    config.num_hidden_layers = 12;
    config.num_attention_heads = 6;
    config.max_position_embeddings = 2048;
    config.hidden_act = "relu2";
    config.bos_token_id = 0;
    config.decoder.eos_token_ids = {1};
    config.decoder.pad_token_id = 1;
    config.decoder.final_logit_softcapping = 15.0;
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(DecoderFamily::fields(c), {{"hidden_act", &c.hidden_act},
                                                  {"attention_bias", &c.decoder.attention_bias},
                                                  {"final_logit_softcapping",
                                                   &c.decoder.final_logit_softcapping, 1e-3, 1e6}});
  }

  // transformers' _init_weights
  [[nodiscard]] double fresh_share(const ModelConfig& config,
                                   std::string_view parameter) const override {
    if (!parameter.ends_with("o_proj.weight")) return 1.0;
    return 1.0 / std::sqrt(2.0 * static_cast<double>(config.num_hidden_layers));
  }

 protected:
  [[nodiscard]] bool has_sequence_classifier() const override { return false; }
  [[nodiscard]] bool has_token_classifier() const override { return false; }
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = decoder_options(config);
    options.has_norm_weights = false;
    options.norms_embeddings = true;
    options.query_key_norm = DecoderOptions::QueryKeyNorm::kOfHeads;
    options.rotates_before_norms = options.rotates_backwards = true;
    options.ungated_up = "fc1";
    options.ungated_down = "fc2";
    return options;
  }
};

}  // namespace

const Architecture& nanochat_architecture() {
  static const NanoChat kNanoChat;
  return kNanoChat;
}

}  // namespace finetune
