// SPDX-License-Identifier: MIT
#include <algorithm>

#include "model/decoder.h"

namespace finetune {
namespace {

// Bakouch et al. 2025: every fourth layer has no rotary positions.
class SmolLm3 final : public DecoderFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "smollm3"; }
  [[nodiscard]] std::string class_prefix() const override { return "SmolLM3"; }

  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.vocab_size = 128256;
    config.hidden_size = 2048;
    config.intermediate_size = 11008;
    config.num_hidden_layers = 36;
    config.num_attention_heads = 16;
    config.decoder.num_key_value_heads = 4;
    config.max_position_embeddings = 32768;
    config.decoder.pad_token_id = 128004;
    config.bos_token_id = 128000;
    config.decoder.eos_token_ids = {128001};
    config.decoder.rope_parameters[""].rope_theta = 2000000.0;
    config.tie_word_embeddings = true;
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(DecoderFamily::fields(c),
                       {{"hidden_act", &c.hidden_act},
                        {"attention_bias", &c.decoder.attention_bias},
                        {"mlp_bias", &c.decoder.mlp_bias},
                        {"use_sliding_window", &c.decoder.use_sliding_window},
                        {"sliding_window", &c.decoder.sliding_window, 1, kMostPositions},
                        {"layer_types", &c.decoder.layer_types},
                        {"no_rope_layers", &c.decoder.no_rope_layers, 0, 1},
                        {"no_rope_layer_interval", &c.decoder.no_rope_layer_interval, 1, 512}});
  }

  void complete(ModelConfig& config, const Refuse& refuse) const override {
    DecoderConfig& own = config.decoder;
    if (own.no_rope_layers.empty()) {
      for (int64_t i = 1; i <= config.num_hidden_layers; ++i) {
        own.no_rope_layers.push_back(i % own.no_rope_layer_interval == 0 ? 0 : 1);
      }
    }
    if (static_cast<int64_t>(own.no_rope_layers.size()) != config.num_hidden_layers) {
      refuse("no_rope_layers has " + std::to_string(own.no_rope_layers.size()) +
             " entries, but num_hidden_layers is " + std::to_string(config.num_hidden_layers));
    }
    DecoderFamily::complete(config, refuse);
  }

 protected:
  [[nodiscard]] std::vector<std::string> fresh_layer_types(
      const ModelConfig& config) const override {
    const DecoderConfig& own = config.decoder;
    return layer_types(config, [&](int64_t layer) {
      return own.use_sliding_window && own.sliding_window &&
             own.no_rope_layers[static_cast<size_t>(layer)] == 0;
    });
  }
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = decoder_options(config);
    for (size_t i = 0; i < options.rope_of_layer.size(); ++i) {
      options.rope_of_layer[i] = config.decoder.no_rope_layers[i] == 0 ? -1 : 0;
    }
    if (!config.decoder.use_sliding_window) {
      std::fill(options.window_of_layer.begin(), options.window_of_layer.end(), 0);
    }
    return options;
  }
};

}  // namespace

const Architecture& smollm3_architecture() {
  static const SmolLm3 kSmolLm3;
  return kSmolLm3;
}

}  // namespace finetune
