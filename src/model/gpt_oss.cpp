// SPDX-License-Identifier: MIT
#include "model/decoder.h"

namespace finetune {
namespace {

constexpr double kAlpha = 1.702;  // of quick_gelu

// OpenAI 2025: a mixture of experts in each layer, attention with sinks, and a window in every
// other layer.
class GptOss final : public DecoderFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "gpt_oss"; }
  [[nodiscard]] std::string class_prefix() const override { return "GptOss"; }

  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.vocab_size = 201088;
    config.hidden_size = 2880;
    config.intermediate_size = 2880;
    config.num_hidden_layers = 36;
    config.num_attention_heads = 64;
    config.max_position_embeddings = 131072;
    config.bos_token_id.reset();
    DecoderConfig& own = config.decoder;
    own.num_key_value_heads = 8;
    own.head_dim = 64;
    own.rms_norm_eps = 1e-5;
    own.eos_token_ids = {};
    own.attention_bias = true;
    own.sliding_window = 128;
    own.num_experts = 128;
    own.num_experts_per_tok = 4;
    own.rope_parameters[""] = {.rope_type = "yarn",
                               .rope_theta = 150000.0,
                               .factor = 32.0,
                               .beta_fast = 32.0,
                               .beta_slow = 1.0,
                               .truncate = false,
                               .original_max_position_embeddings = 4096};
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    DecoderConfig& own = c.decoder;
    ConfigFields fields = DecoderFamily::fields(c);
    add_expert_fields(fields, c);
    add_window_fields(fields, c);
    return with_fields(without_fields(std::move(fields), {"norm_topk_prob"}),
                       {{"hidden_act", &c.hidden_act},
                        {"head_dim", &own.head_dim, 1, 4096},
                        {"attention_bias", &own.attention_bias},
                        {"num_local_experts", &own.num_experts, 1, 4096},
                        {"swiglu_alpha", &own.swiglu_alpha, 0.0, 1e6},
                        {"swiglu_limit", &own.swiglu_limit, 1e-6, 1e6}});
  }

  void complete(ModelConfig& config, const Refuse& refuse) const override {
    if (config.decoder.swiglu_alpha != kAlpha) {
      refuse("swiglu_alpha other than 1.702 is not available");
    }
    check_experts(config, refuse, "num_local_experts");
    DecoderFamily::complete(config, refuse);
  }

  [[nodiscard]] bool is_drawn(const std::string& name) const override {
    return name.ends_with(".sinks") || name.ends_with(".router.bias");
  }

 protected:
  [[nodiscard]] std::vector<std::string> fresh_layer_types(
      const ModelConfig& config) const override {
    return layer_types(config, [](int64_t layer) { return layer % 2 == 0; });
  }
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = decoder_options(config);
    options.has_sinks = true;
    options.experts = experts_of(config, config.intermediate_size);
    options.experts.activation = find_activation("quick_gelu");
    options.experts.normalizes = true;
    options.experts.router = "router";
    options.experts.router_has_bias = true;
    options.experts.limit = config.decoder.swiglu_limit;
    options.experts.stack = {.gate_up = "experts.gate_up_proj",
                             .down = "experts.down_proj",
                             .is_transposed = true,
                             .has_bias = true,
                             .alternates = true};
    return options;
  }
};

}  // namespace

const Architecture& gpt_oss_architecture() {
  static const GptOss kGptOss;
  return kGptOss;
}

}  // namespace finetune
