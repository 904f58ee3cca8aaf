// SPDX-License-Identifier: MIT
#include <cmath>

#include "model/decoder.h"

namespace finetune {
namespace {

// The common part of Gemma's generations: norms multiply by 1 + weight, embeddings by sqrt(C).
class GemmaFamily : public DecoderFamily {
 public:
  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.hidden_act = "gelu_pytorch_tanh";
    config.decoder.head_dim = 256;
    config.decoder.pad_token_id = 0;
    config.decoder.eos_token_ids = {1};
    config.bos_token_id = 2;
    config.tie_word_embeddings = true;
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(DecoderFamily::fields(c),
                       {{"head_dim", &c.decoder.head_dim, 1, 4096},
                        {"attention_bias", &c.decoder.attention_bias},
                        {"use_bidirectional_attention", &c.decoder.use_bidirectional_attention}});
  }

  void complete(ModelConfig& config, const Refuse& refuse) const override {
    if (config.decoder.use_bidirectional_attention.value_or(false)) {
      refuse("use_bidirectional_attention is true, but only causal attention is available");
    }
    // Files that say "gelu" mean gelu_pytorch_tanh; transformers also reads them so.
    if (config.hidden_act == "gelu") config.hidden_act = "gelu_pytorch_tanh";
    DecoderFamily::complete(config, refuse);
  }
  [[nodiscard]] double fresh_norm() const override { return 0.0; }

 protected:
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = decoder_options(config);
    options.adds_one_to_norms = true;
    options.embedding_scale =
        static_cast<float>(std::sqrt(static_cast<double>(config.hidden_size)));
    return options;
  }
};

// Mesnard et al. 2024
class Gemma final : public GemmaFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "gemma"; }
  [[nodiscard]] std::string class_prefix() const override { return "Gemma"; }

  void set_defaults(ModelConfig& config) const override {
    GemmaFamily::set_defaults(config);
    config.vocab_size = 256000;
    config.hidden_size = 3072;
    config.intermediate_size = 24576;
    config.num_hidden_layers = 28;
    config.num_attention_heads = 16;
    config.decoder.num_key_value_heads = 16;
    config.max_position_embeddings = 8192;
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(GemmaFamily::fields(c), {{"hidden_act", &c.hidden_act}});
  }
};

// The common part of Gemma 2 and 3: norms before and after sublayers, windows, soft-capping, a
// query scale.
class Gemma2Family : public GemmaFamily {
 public:
  void set_defaults(ModelConfig& config) const override {
    GemmaFamily::set_defaults(config);
    config.vocab_size = 256000;
    config.hidden_size = 2304;
    config.intermediate_size = 9216;
    config.num_hidden_layers = 26;
    config.num_attention_heads = 8;
    config.decoder.num_key_value_heads = 4;
    config.max_position_embeddings = 8192;
    config.decoder.sliding_window = 4096;
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    ConfigFields fields = GemmaFamily::fields(c);
    add_window_fields(fields, c);
    return with_fields(
        std::move(fields),
        {{"hidden_activation", &c.hidden_act},
         {"query_pre_attn_scalar", &c.decoder.query_pre_attn_scalar, 1, 65536},
         {"attn_logit_softcapping", &c.decoder.attn_logit_softcapping, 1e-3, 1e6},
         {"final_logit_softcapping", &c.decoder.final_logit_softcapping, 1e-3, 1e6}});
  }

 protected:
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = GemmaFamily::options(config);
    options.norms.after_attention = "post_attention_layernorm";
    options.norms.before_feed_forward = "pre_feedforward_layernorm";
    options.norms.after_feed_forward = "post_feedforward_layernorm";
    options.query_scale =
        1.0 / std::sqrt(static_cast<double>(config.decoder.query_pre_attn_scalar));
    options.softcap = config.decoder.attn_logit_softcapping.value_or(0.0);
    return options;
  }
};

// Riviere et al. 2024: every second layer has a sliding window.
class Gemma2 final : public Gemma2Family {
 public:
  [[nodiscard]] std::string model_type() const override { return "gemma2"; }
  [[nodiscard]] std::string class_prefix() const override { return "Gemma2"; }

  void set_defaults(ModelConfig& config) const override {
    Gemma2Family::set_defaults(config);
    config.decoder.attn_logit_softcapping = 50.0;
    config.decoder.final_logit_softcapping = 30.0;
  }

 protected:
  [[nodiscard]] std::vector<std::string> fresh_layer_types(
      const ModelConfig& config) const override {
    return layer_types(config, [](int64_t layer) { return layer % 2 == 0; });
  }
};

// Kamath et al. 2025: norms of queries and keys; five layers with a sliding window to one without,
// each kind with its own rotary base.
class Gemma3 final : public Gemma2Family {
 public:
  [[nodiscard]] std::string model_type() const override { return "gemma3_text"; }
  [[nodiscard]] std::string class_prefix() const override { return "Gemma3Text"; }
  [[nodiscard]] std::string lm_class() const override { return "Gemma3ForCausalLM"; }

  void set_defaults(ModelConfig& config) const override {
    Gemma2Family::set_defaults(config);
    config.vocab_size = 262208;
    config.max_position_embeddings = 131072;
    config.decoder.use_bidirectional_attention = false;
    config.decoder.rope_parameters = {{"full_attention", {.rope_theta = 1e6}},
                                      {"sliding_attention", {}}};
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(
        Gemma2Family::fields(c),
        {{"_sliding_window_pattern", &c.decoder.sliding_window_pattern, 1, 512},
         old_name("sliding_window_pattern", &c.decoder.sliding_window_pattern, 1, 512)});
  }

 protected:
  [[nodiscard]] bool has_token_classifier() const override { return false; }
  [[nodiscard]] std::vector<std::string> fresh_layer_types(
      const ModelConfig& config) const override {
    return layer_types(config, [&](int64_t layer) {
      return (layer + 1) % config.decoder.sliding_window_pattern != 0;
    });
  }
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = Gemma2Family::options(config);
    options.query_key_norm = DecoderOptions::QueryKeyNorm::kOfHeads;
    rotate_by_layer_type(config, options);
    return options;
  }
};

}  // namespace

const Architecture& gemma_architecture() {
  static const Gemma kGemma;
  return kGemma;
}

const Architecture& gemma2_architecture() {
  static const Gemma2 kGemma2;
  return kGemma2;
}

const Architecture& gemma3_text_architecture() {
  static const Gemma3 kGemma3;
  return kGemma3;
}

}  // namespace finetune
