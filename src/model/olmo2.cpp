// SPDX-License-Identifier: MIT
#include "model/decoder.h"

namespace finetune {
namespace {

// OLMo et al. 2024: norms after the sublayers; queries and keys are normalised over all heads.
class Olmo2 : public DecoderFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "olmo2"; }
  [[nodiscard]] std::string class_prefix() const override { return "Olmo2"; }

  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.vocab_size = 50304;
    config.hidden_size = 4096;
    config.intermediate_size = 11008;
    config.num_hidden_layers = 32;
    config.num_attention_heads = 32;
    config.max_position_embeddings = 2048;
    config.bos_token_id.reset();
    config.decoder.rms_norm_eps = 1e-5;
    config.decoder.pad_token_id = 1;
    config.decoder.eos_token_ids = {50279};
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(DecoderFamily::fields(c), {{"hidden_act", &c.hidden_act},
                                                  {"attention_bias", &c.decoder.attention_bias}});
  }

 protected:
  [[nodiscard]] bool has_token_classifier() const override { return false; }
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = decoder_options(config);
    options.norms = kNormsOfOutputs;
    options.query_key_norm = DecoderOptions::QueryKeyNorm::kOfRows;
    return options;
  }
};

// Olmo Team 2025: three layers with a sliding window to one without, each kind with its own rotary
// parameters.
class Olmo3 final : public Olmo2 {
 public:
  [[nodiscard]] std::string model_type() const override { return "olmo3"; }
  [[nodiscard]] std::string class_prefix() const override { return "Olmo3"; }

  void set_defaults(ModelConfig& config) const override {
    Olmo2::set_defaults(config);
    config.decoder.sliding_window = 4096;
    config.decoder.rope_parameters = {{"full_attention", {.rope_theta = 500000.0}},
                                      {"sliding_attention", {.rope_theta = 500000.0}}};
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    ConfigFields fields = Olmo2::fields(c);
    add_window_fields(fields, c);
    return fields;
  }

 protected:
  [[nodiscard]] std::vector<std::string> fresh_layer_types(
      const ModelConfig& config) const override {
    return layer_types(config, [](int64_t layer) { return (layer + 1) % 4 != 0; });
  }
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = Olmo2::options(config);
    rotate_by_layer_type(config, options);
    return options;
  }
};

}  // namespace

const Architecture& olmo2_architecture() {
  static const Olmo2 kOlmo2;
  return kOlmo2;
}

const Architecture& olmo3_architecture() {
  static const Olmo3 kOlmo3;
  return kOlmo3;
}

}  // namespace finetune
