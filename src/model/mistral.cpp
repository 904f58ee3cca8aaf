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

// Mistral AI 2025: queries grow with their positions (YaRN, and Llama 4's factors).
class Ministral3 final : public Mistral {
 public:
  [[nodiscard]] std::string model_type() const override { return "ministral3"; }
  [[nodiscard]] std::string class_prefix() const override { return "Ministral3"; }

  void set_defaults(ModelConfig& config) const override {
    Mistral::set_defaults(config);
    config.vocab_size = 131072;
    config.num_hidden_layers = 34;
    config.max_position_embeddings = 262144;
    config.decoder.head_dim = 128;
    config.decoder.rms_norm_eps = 1e-5;
    config.decoder.pad_token_id = 11;
    config.decoder.sliding_window.reset();
    config.decoder.rope_parameters[""] = {.rope_type = "yarn",
                                          .rope_theta = 1000000.0,
                                          .factor = 16.0,
                                          .beta_fast = 32.0,
                                          .beta_slow = 1.0,
                                          .mscale = 1.0,
                                          .mscale_all_dim = 1.0,
                                          .llama_4_scaling_beta = 0.1,
                                          .max_position_embeddings = 262144,
                                          .original_max_position_embeddings = 16384};
  }

  // Its forward pass in transformers needs both, whatever the rope_type.
  void complete(ModelConfig& config, const Refuse& refuse) const override {
    Mistral::complete(config, refuse);
    const RopeParameters& rope = config.decoder.rope_parameters.at("");
    if (!rope.llama_4_scaling_beta || !rope.original_max_position_embeddings) {
      refuse(
          "rope_parameters has no 'llama_4_scaling_beta' or no "
          "'original_max_position_embeddings', which ministral3 needs");
    }
  }

 protected:
  [[nodiscard]] bool reads_llama_4_scaling() const override { return true; }
};

}  // namespace

const Architecture& mistral_architecture() {
  static const Mistral kMistral;
  return kMistral;
}

const Architecture& ministral3_architecture() {
  static const Ministral3 kMinistral3;
  return kMinistral3;
}

const Architecture& ministral_architecture() {
  static const Ministral kMinistral;
  return kMinistral;
}

}  // namespace finetune
