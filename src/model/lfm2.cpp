// SPDX-License-Identifier: MIT
#include <algorithm>

#include "model/decoder.h"

namespace finetune {
namespace {

// Liquid AI 2025: most layers mix tokens by a short convolution instead of attention.
class Lfm2 final : public DecoderFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "lfm2"; }
  [[nodiscard]] std::string class_prefix() const override { return "Lfm2"; }

  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.vocab_size = 65536;
    config.hidden_size = 2560;
    config.intermediate_size = 12288;
    config.num_hidden_layers = 32;
    config.num_attention_heads = 32;
    config.decoder.num_key_value_heads = 8;
    config.max_position_embeddings = 128000;
    config.decoder.rms_norm_eps = 1e-5;
    config.decoder.pad_token_id = 0;
    config.decoder.rope_parameters[""].rope_theta = 1000000.0;
    config.tie_word_embeddings = true;
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    DecoderConfig& own = c.decoder;
    return with_fields(without_fields(DecoderFamily::fields(c),
                                      {"rms_norm_eps", "attention_dropout", "classifier_dropout"}),
                       {old_name("tie_embedding", &c.tie_word_embeddings),
                        old_name("block_ff_dim", &c.intermediate_size, 1, 1 << 20),
                        {"norm_eps", &own.rms_norm_eps, 0.0, 1.0},
                        {"conv_bias", &own.conv_bias},
                        {"conv_L_cache", &own.conv_L_cache, 1, 64},
                        {"block_multiple_of", &own.block_multiple_of, 1, 65536},
                        {"block_ffn_dim_multiplier", &own.block_ffn_dim_multiplier, 1e-3, 1e3},
                        {"block_auto_adjust_ff_dim", &own.block_auto_adjust_ff_dim},
                        {"full_attn_idxs", &own.full_attn_idxs, 0, 511},
                        {"layer_types", &own.layer_types}});
  }

  void complete(ModelConfig& config, const Refuse& refuse) const override {
    DecoderConfig& own = config.decoder;
    if (own.layer_types.empty() && own.full_attn_idxs.empty()) {  // as transformers records it
      for (int64_t i = 0; i < config.num_hidden_layers; ++i) own.full_attn_idxs.push_back(i);
    }
    DecoderFamily::complete(config, refuse);
  }

 protected:
  [[nodiscard]] bool has_sequence_classifier() const override { return false; }
  [[nodiscard]] bool has_token_classifier() const override { return false; }
  [[nodiscard]] std::vector<std::string> known_layer_types() const override {
    return {"full_attention", "conv"};
  }
  [[nodiscard]] std::vector<std::string> fresh_layer_types(
      const ModelConfig& config) const override {
    std::vector<std::string> types(static_cast<size_t>(config.num_hidden_layers), "conv");
    for (const int64_t i : config.decoder.full_attn_idxs) {
      if (i < config.num_hidden_layers) types[static_cast<size_t>(i)] = "full_attention";
    }
    return types;
  }
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = decoder_options(config);
    options.names = {.output = "out_proj",
                     .feed_forward = "feed_forward",
                     .gate = "w1",
                     .up = "w3",
                     .down = "w2",
                     .query_norm = "q_layernorm",
                     .key_norm = "k_layernorm",
                     .last_norm = "embedding_norm"};
    options.norms = {.before_attention = "operator_norm", .before_feed_forward = "ffn_norm"};
    options.intermediate = intermediate(config);
    options.query_key_norm = DecoderOptions::QueryKeyNorm::kOfHeads;
    options.convolution = config.decoder.conv_L_cache;
    options.convolution_bias = config.decoder.conv_bias;
    for (const std::string& type : config.decoder.layer_types) {
      options.mixer_of_layer.push_back(type == "conv" ? DecoderOptions::Mixer::kConvolution
                                                      : DecoderOptions::Mixer::kAttention);
    }
    return options;
  }

 private:
  static int64_t intermediate(const ModelConfig& config) {
    const DecoderConfig& own = config.decoder;
    if (!own.block_auto_adjust_ff_dim) return config.intermediate_size;
    int64_t size = 2 * config.intermediate_size / 3;
    if (!own.block_ffn_dim_multiplier) return size;
    size = static_cast<int64_t>(*own.block_ffn_dim_multiplier * static_cast<double>(size));
    return own.block_multiple_of * ((size + own.block_multiple_of - 1) / own.block_multiple_of);
  }
};

}  // namespace

const Architecture& lfm2_architecture() {
  static const Lfm2 kLfm2;
  return kLfm2;
}

}  // namespace finetune
