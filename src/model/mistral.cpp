// SPDX-License-Identifier: MIT
#include "model/decoder.h"

namespace finetune {
namespace {

// Jiang et al. 2023: Llama with a sliding window.
class Mistral : public DecoderFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "mistral"; }
  [[nodiscard]] std::string class_prefix() const override { return "Mistral"; }

  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.vocab_size = 32000;
    config.hidden_size = 4096;
    config.intermediate_size = 14336;
    config.num_hidden_layers = 32;
    config.num_attention_heads = 32;
    config.decoder.num_key_value_heads = 8;
    config.max_position_embeddings = 4096 * 32;
    config.decoder.sliding_window = 4096;
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(DecoderFamily::fields(c),
                       {{"hidden_act", &c.hidden_act},
                        {"head_dim", &c.decoder.head_dim, 1, 4096},
                        {"sliding_window", &c.decoder.sliding_window, 1, kMostPositions}});
  }

 protected:
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = decoder_options(config);
    slide_every_layer(config, options);
    return options;
  }
};

// Mistral AI 2024: a window in the layers that layer_types names.
class Ministral final : public Mistral {
 public:
  [[nodiscard]] std::string model_type() const override { return "ministral"; }
  [[nodiscard]] std::string class_prefix() const override { return "Ministral"; }
  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(Mistral::fields(c), {{"layer_types", &c.decoder.layer_types}});
  }

 protected:
  [[nodiscard]] std::vector<std::string> fresh_layer_types(
      const ModelConfig& config) const override {
    return layer_types(config, [&](int64_t) { return config.decoder.sliding_window.has_value(); });
  }
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    return decoder_options(config);
  }
};

}  // namespace

const Architecture& mistral_architecture() {
  static const Mistral kMistral;
  return kMistral;
}

const Architecture& ministral_architecture() {
  static const Ministral kMinistral;
  return kMinistral;
}

}  // namespace finetune
