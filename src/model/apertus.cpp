// SPDX-License-Identifier: MIT
#include <ATen/ops/full.h>

#include "finetune/base/error.h"
#include "model/decoder.h"

namespace finetune {
namespace {

// Swiss AI Initiative 2025: Llama without a gate, whose activation xIELU has two weights a layer.
class Apertus final : public DecoderFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "apertus"; }
  [[nodiscard]] std::string class_prefix() const override { return "Apertus"; }
  [[nodiscard]] bool has_xielu() const override { return true; }
  [[nodiscard]] std::optional<Tensor> fixed_values(const ModelConfig& /*config*/,
                                                   const Weight& weight) const override {
    if (weight.role() != ParameterRole::kConstant) return std::nullopt;
    return at::full({}, weight.name().ends_with(".beta") ? 0.5 : -1e-6);
  }

  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.vocab_size = 131072;
    config.hidden_size = 4096;
    config.intermediate_size = 14336;
    config.num_hidden_layers = 32;
    config.num_attention_heads = 32;
    config.max_position_embeddings = 65536;
    config.hidden_act = "xielu";
    config.decoder.rms_norm_eps = 1e-5;
    config.decoder.pad_token_id = 3;
    config.decoder.rope_parameters[""] = {.rope_type = "llama3",
                                          .rope_theta = 12000000.0,
                                          .factor = 8.0,
                                          .low_freq_factor = 1.0,
                                          .high_freq_factor = 4.0,
                                          .original_max_position_embeddings = 8192};
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(DecoderFamily::fields(c), {{"hidden_act", &c.hidden_act},
                                                  {"attention_bias", &c.decoder.attention_bias}});
  }

 protected:
  [[nodiscard]] bool has_sequence_classifier() const override { return false; }
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = decoder_options(config);
    options.norms = {.before_attention = "attention_layernorm",
                     .before_feed_forward = "feedforward_layernorm"};
    options.query_key_norm = DecoderOptions::QueryKeyNorm::kOfHeads;
    options.ungated_up = "up_proj";
    options.ungated_down = "down_proj";
    options.has_xielu = config.hidden_act == "xielu";
    return options;
  }
};

}  // namespace

const Architecture& apertus_architecture() {
  static const Apertus kApertus;
  return kApertus;
}

}  // namespace finetune
