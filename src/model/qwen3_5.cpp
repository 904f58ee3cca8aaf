// SPDX-License-Identifier: MIT
#include "model/decoder.h"

namespace finetune {
namespace {

// Qwen Team 2026, the language model: three layers of gated delta nets to one of gated attention.
class Qwen35Text final : public DecoderFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "qwen3_5_text"; }
  [[nodiscard]] std::string class_prefix() const override { return "Qwen3_5Text"; }
  [[nodiscard]] std::string lm_class() const override { return "Qwen3_5ForCausalLM"; }
  [[nodiscard]] double fresh_norm() const override { return 0.0; }

  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.vocab_size = 248320;
    config.hidden_size = 4096;
    config.intermediate_size = 12288;
    config.num_hidden_layers = 32;
    config.num_attention_heads = 16;
    config.decoder.num_key_value_heads = 4;
    config.decoder.head_dim = 256;
    config.max_position_embeddings = 32768;
    config.bos_token_id.reset();
    config.decoder.eos_token_ids.clear();
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    DecoderConfig& own = c.decoder;
    return with_fields(without_fields(DecoderFamily::fields(c), {"classifier_dropout"}),
                       {{"hidden_act", &c.hidden_act},
                        {"head_dim", &own.head_dim, 1, 4096},
                        {"attention_bias", &own.attention_bias},
                        {"linear_conv_kernel_dim", &own.linear_conv_kernel_dim, 1, 64},
                        {"linear_key_head_dim", &own.linear_key_head_dim, 1, 1024},
                        {"linear_value_head_dim", &own.linear_value_head_dim, 1, 1024},
                        {"linear_num_key_heads", &own.linear_num_key_heads, 1, 1024},
                        {"linear_num_value_heads", &own.linear_num_value_heads, 1, 1024},
                        old_name("full_attention_interval", &own.full_attention_interval, 1, 512),
                        {"layer_types", &own.layer_types}});
  }

  void complete(ModelConfig& config, const Refuse& refuse) const override {
    const DecoderConfig& own = config.decoder;
    if (own.linear_num_value_heads % own.linear_num_key_heads != 0) {
      refuse("linear_num_value_heads " + std::to_string(own.linear_num_value_heads) +
             " does not divide by linear_num_key_heads " +
             std::to_string(own.linear_num_key_heads));
    }
    if (config.hidden_act != "silu") {
      refuse("hidden_act '" + config.hidden_act + "' is not available: convolutions have silu");
    }
    DecoderFamily::complete(config, refuse);
  }

 protected:
  [[nodiscard]] bool has_token_classifier() const override { return false; }
  [[nodiscard]] std::optional<double> rotated_share() const override { return 0.25; }
  [[nodiscard]] std::vector<std::string> known_layer_types() const override {
    return {"full_attention", "linear_attention"};
  }
  [[nodiscard]] std::vector<std::string> fresh_layer_types(
      const ModelConfig& config) const override {
    const int64_t every = config.decoder.full_attention_interval.value_or(4);
    std::vector<std::string> types;
    for (int64_t i = 1; i <= config.num_hidden_layers; ++i) {
      types.emplace_back(i % every == 0 ? "full_attention" : "linear_attention");
    }
    return types;
  }
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    const DecoderConfig& own = config.decoder;
    DecoderOptions options = decoder_options(config);
    options.adds_one_to_norms = true;
    options.query_key_norm = DecoderOptions::QueryKeyNorm::kOfHeads;
    options.gates_attention = true;
    options.delta_net = {.hidden = config.hidden_size,
                         .heads = own.linear_num_value_heads,
                         .key_heads = own.linear_num_key_heads,
                         .key_size = own.linear_key_head_dim,
                         .value_size = own.linear_value_head_dim,
                         .convolution = own.linear_conv_kernel_dim,
                         .epsilon = own.rms_norm_eps};
    for (const std::string& type : own.layer_types) {
      options.mixer_of_layer.push_back(type == "full_attention" ? DecoderOptions::Mixer::kAttention
                                                                : DecoderOptions::Mixer::kDeltaNet);
    }
    return options;
  }
};

}  // namespace

const Architecture& qwen3_5_text_architecture() {
  static const Qwen35Text kQwen35Text;
  return kQwen35Text;
}

}  // namespace finetune
