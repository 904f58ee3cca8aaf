// SPDX-License-Identifier: MIT
#include "finetune/base/text.h"
#include "model/gemma_n.h"

namespace finetune {
namespace {

// Gemma Team 2026, the language model: layers that see all tokens have larger heads, and their keys
// may be their values, too.
class Gemma4 final : public GemmaNFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "gemma4_text"; }
  [[nodiscard]] std::string class_prefix() const override { return "Gemma4Text"; }
  [[nodiscard]] std::string lm_class() const override { return "Gemma4ForCausalLM"; }

  void set_defaults(ModelConfig& config) const override {
    GemmaNFamily::set_defaults(config);
    config.vocab_size = 262144;
    config.hidden_size = 2304;
    config.intermediate_size = 9216;
    config.num_hidden_layers = 30;
    config.num_attention_heads = 8;
    config.max_position_embeddings = 131072;
    config.decoder.num_key_value_heads = 4;
    config.decoder.rope_parameters = {
        {"full_attention",
         {.rope_type = "proportional", .rope_theta = 1e6, .partial_rotary_factor = 0.25}},
        {"sliding_attention", {}}};
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    DecoderConfig& own = c.decoder;
    return with_fields(
        GemmaNFamily::fields(c),
        {{"use_bidirectional_attention", &own.bidirectional},
         {"attention_k_eq_v", &own.attention_k_eq_v},
         {"enable_moe_block", &own.enable_moe_block},
         {"use_double_wide_mlp", &own.use_double_wide_mlp},
         {"num_experts", &own.num_experts, 1, 65536},
         {"top_k_experts", &own.top_k_experts, 1, 65536},
         {"moe_intermediate_size", &own.moe_intermediate_size, 1, 1 << 20},
         {"per_layer_config", &own.per_layer_config},
         old_name("global_head_dim", &own.global_head_dim, 1, 4096),
         old_name("num_global_key_value_heads", &own.num_global_key_value_heads, 1, 1024)});
  }

  void complete(ModelConfig& config, const Refuse& refuse) const override {
    DecoderConfig& own = config.decoder;
    if (own.enable_moe_block) {
      refuse(
          "enable_moe_block true is not available: mixtures of experts are not; use a dense "
          "model of the family");
    }
    if (own.bidirectional && *own.bidirectional != "vision") {  // which text does not have
      refuse("use_bidirectional_attention is '" + *own.bidirectional +
             "', but only causal attention is available");
    }
    if (own.layer_types.empty()) own.layer_types = fresh_layer_types(config);
    own.layer_types.back() = "full_attention";  // as transformers has it
    if (!own.per_layer_config) own.per_layer_config = layers_of_full_attention(own);
    GemmaNFamily::complete(config, refuse);
    check_layers(config, refuse);
    if (own.hidden_size_per_layer_input > 0 && own.vocab_size_per_layer_input < config.vocab_size) {
      refuse(format_text("vocab_size_per_layer_input {} is below vocab_size {}",
                         own.vocab_size_per_layer_input, config.vocab_size));
    }
  }

 protected:
  [[nodiscard]] std::vector<std::string> fresh_layer_types(
      const ModelConfig& config) const override {
    return layer_types(config, [](int64_t layer) { return (layer + 1) % 6 != 0; });
  }
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    const DecoderConfig& own = config.decoder;
    DecoderOptions options = GemmaNFamily::options(config);
    options.norm_order = DecoderOptions::NormOrder::kAfterQueries;
    options.values_are_keys = own.attention_k_eq_v;
    options.scales_layers = true;
    for (int64_t layer = 0; layer < options.layers; ++layer) {
      const bool is_wide = own.use_double_wide_mlp && keys_of(config, layer) != layer;
      const LayerConfig sizes = layer_config(own, layer);
      options.sizes_of_layer.push_back(
          {.intermediate = (is_wide ? 2 : 1) * config.intermediate_size,
           .kv_heads = sizes.num_key_value_heads.value_or(options.kv_heads),
           .head_dim = sizes.head_dim.value_or(options.head_dim)});
    }
    return options;
  }

 private:
  // What transformers gives layers of full attention in a configuration that does not name layers.
  static PerLayerConfig layers_of_full_attention(const DecoderConfig& own) {
    PerLayerConfig layers;
    for (size_t i = 0; i < own.layer_types.size(); ++i) {
      if (own.layer_types[i] != "full_attention") continue;
      LayerConfig layer;
      if (own.global_head_dim != own.head_dim) layer.head_dim = own.global_head_dim;
      if (own.attention_k_eq_v && own.num_global_key_value_heads != own.num_key_value_heads) {
        layer.num_key_value_heads = own.num_global_key_value_heads;
      }
      if (layer.head_dim || layer.num_key_value_heads) layers[static_cast<int64_t>(i)] = layer;
    }
    return layers;
  }

  static LayerConfig layer_config(const DecoderConfig& own, int64_t layer) {
    const auto found = own.per_layer_config->find(layer);
    return found == own.per_layer_config->end() ? LayerConfig{} : found->second;
  }

  // Layers of one type share rotations, and may share keys and values.
  static void check_layers(const ModelConfig& config, const Refuse& refuse) {
    const DecoderConfig& own = config.decoder;
    if (!own.per_layer_config->empty() &&
        own.per_layer_config->rbegin()->first >= config.num_hidden_layers) {
      refuse(format_text("per_layer_config has layer {}, but num_hidden_layers is {}",
                         own.per_layer_config->rbegin()->first, config.num_hidden_layers));
    }
    for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
      const std::string& type = own.layer_types[static_cast<size_t>(layer)];
      const LayerConfig sizes = layer_config(own, layer);
      const int64_t head_dim = sizes.head_dim.value_or(*own.head_dim);
      const int64_t kv_heads = sizes.num_key_value_heads.value_or(*own.num_key_value_heads);
      if (head_dim != head_dim_of(config, type)) {
        refuse(
            format_text("per_layer_config: layers of {} have heads of {} and of {} values, "
                        "which is not available",
                        type, head_dim_of(config, type), head_dim));
      }
      if (config.num_attention_heads % kv_heads != 0) {
        refuse(
            format_text("per_layer_config.{}: num_attention_heads {} does not divide by "
                        "num_key_value_heads {}",
                        layer, config.num_attention_heads, kv_heads));
      }
      const int64_t source = keys_of(config, layer);
      if (layer_config(own, source).num_key_value_heads != sizes.num_key_value_heads) {
        refuse(
            format_text("per_layer_config: layer {} reads keys of layer {}, which has another "
                        "num_key_value_heads",
                        layer, source));
      }
    }
  }
};

}  // namespace

const Architecture& gemma4_text_architecture() {
  static const Gemma4 kGemma4;
  return kGemma4;
}

}  // namespace finetune
