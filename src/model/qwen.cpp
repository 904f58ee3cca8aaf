// SPDX-License-Identifier: MIT
#include <algorithm>

#include "model/decoder.h"

namespace finetune {
namespace {

// The common part of Qwen2 and Qwen3: sliding windows in the layers from max_window_layers on.
class QwenFamily : public DecoderFamily {
 public:
  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.vocab_size = 151936;
    config.hidden_size = 4096;
    config.intermediate_size = 22016;
    config.num_hidden_layers = 32;
    config.num_attention_heads = 32;
    config.decoder.num_key_value_heads = 32;
    config.max_position_embeddings = 32768;
    config.bos_token_id.reset();
    config.decoder.eos_token_ids.clear();
    config.decoder.sliding_window = 4096;
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    ConfigFields fields = DecoderFamily::fields(c);
    add_window_fields(fields, c);
    return with_fields(std::move(fields),
                       {{"hidden_act", &c.hidden_act},
                        {"use_sliding_window", &c.decoder.use_sliding_window},
                        {"max_window_layers", &c.decoder.max_window_layers, 0, 1 << 20}});
  }

  void complete(ModelConfig& config, const Refuse& refuse) const override {
    if (!config.decoder.use_sliding_window) config.decoder.sliding_window.reset();
    DecoderFamily::complete(config, refuse);
  }

 protected:
  [[nodiscard]] std::vector<std::string> fresh_layer_types(
      const ModelConfig& config) const override {
    const DecoderConfig& own = config.decoder;
    return layer_types(config, [&](int64_t layer) {
      return own.sliding_window && layer >= own.max_window_layers;
    });
  }
};

// Yang et al. 2024: query, key and value projections have biases.
class Qwen2 final : public QwenFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "qwen2"; }
  [[nodiscard]] std::string class_prefix() const override { return "Qwen2"; }

 protected:
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = decoder_options(config);
    options.qkv_bias = true;
    return options;
  }
};

// Yang et al. 2025: norms of queries and keys instead of the biases.
class Qwen3 final : public QwenFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "qwen3"; }
  [[nodiscard]] std::string class_prefix() const override { return "Qwen3"; }

  void set_defaults(ModelConfig& config) const override {
    QwenFamily::set_defaults(config);
    config.decoder.head_dim = 128;
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(QwenFamily::fields(c), {{"head_dim", &c.decoder.head_dim, 1, 4096},
                                               {"attention_bias", &c.decoder.attention_bias}});
  }

 protected:
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = decoder_options(config);
    options.query_key_norm = DecoderOptions::QueryKeyNorm::kOfHeads;
    return options;
  }
};

// The same with a mixture of experts in most layers.
class Qwen3Moe final : public QwenFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "qwen3_moe"; }
  [[nodiscard]] std::string class_prefix() const override { return "Qwen3Moe"; }

  void set_defaults(ModelConfig& config) const override {
    QwenFamily::set_defaults(config);
    config.hidden_size = 2048;
    config.intermediate_size = 6144;
    config.num_hidden_layers = 24;
    config.num_attention_heads = 32;
    config.decoder.num_key_value_heads = 4;
    config.decoder.num_experts = 128;
    config.decoder.moe_intermediate_size = 768;
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    DecoderConfig& own = c.decoder;
    ConfigFields fields =
        without_fields(QwenFamily::fields(c), {"layer_types", "max_window_layers"});
    add_expert_fields(fields, c);
    // transformers' class has no such field, and reads it all the same.
    if (own.head_dim.value_or(0) != c.hidden_size / c.num_attention_heads) {
      fields.push_back(optional_field("head_dim", &own.head_dim, 1, 4096));
    }
    return with_fields(std::move(fields),
                       {{"attention_bias", &own.attention_bias},
                        {"moe_intermediate_size", &own.moe_intermediate_size, 1, 1 << 20},
                        {"decoder_sparse_step", &own.decoder_sparse_step, 1, 512},
                        {.name = "mlp_only_layers",
                         .target = &own.mlp_only_layers,
                         .low = 0,
                         .high = 511,
                         .keeps_empty = true},
                        {"num_local_experts", &own.num_experts, 1, 4096},
                        old_name("num_experts", &own.num_experts, 1, 4096)});
  }

  void complete(ModelConfig& config, const Refuse& refuse) const override {
    check_experts(config, refuse);
    if (!config.decoder.moe_intermediate_size) refuse("moe_intermediate_size is null");
    QwenFamily::complete(config, refuse);
  }

 protected:
  [[nodiscard]] std::vector<std::string> fresh_layer_types(
      const ModelConfig& /*config*/) const override {
    return {};
  }
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    const DecoderConfig& own = config.decoder;
    DecoderOptions options = decoder_options(config);
    options.query_key_norm = DecoderOptions::QueryKeyNorm::kOfHeads;
    options.experts = experts_of(config, *own.moe_intermediate_size);
    options.experts.router_comes_last = true;
    for (int64_t layer = 0; layer < options.layers; ++layer) {
      options.has_experts.push_back((layer + 1) % own.decoder_sparse_step == 0 &&
                                    std::ranges::count(own.mlp_only_layers, layer) == 0);
    }
    slide_every_layer(config, options);
    return options;
  }
};

}  // namespace

const Architecture& qwen2_architecture() {
  static const Qwen2 kQwen2;
  return kQwen2;
}

const Architecture& qwen3_moe_architecture() {
  static const Qwen3Moe kQwen3Moe;
  return kQwen3Moe;
}

const Architecture& qwen3_architecture() {
  static const Qwen3 kQwen3;
  return kQwen3;
}

}  // namespace finetune
