// SPDX-License-Identifier: MIT
#include <ATen/ops/arange.h>

#include <cmath>

#include "model/decoder.h"

namespace finetune {
namespace {

// Radford et al. 2019: h = x + Proj(Attention(LN(x))), y = h + Proj(f(Fc(LN(h)))), all products
// with biases and with weights [in, out].
class Gpt2Layer {
 public:
  Gpt2Layer(const nn::Scope& scope, const ModelConfig& config, int64_t layer)
      : attention_{.heads = config.num_attention_heads,
                   .layer = layer,
                   .dropout = config.attention_probs_dropout_prob,
                   .causal = true,
                   .scale = scale_of(config, layer)},
        hidden_(config.hidden_size),
        dropout_(config.decoder.resid_pdrop),
        activation_(find_activation(config.hidden_act)),
        norm1_(scope / "ln_1", hidden_, config.layer_norm_eps),
        query_key_value_(scope / "attn" / "c_attn", hidden_, 3 * hidden_),
        output_(scope / "attn" / "c_proj", hidden_, hidden_),
        norm2_(scope / "ln_2", hidden_, config.layer_norm_eps),
        up_(scope / "mlp" / "c_fc", hidden_, config.intermediate_size),
        down_(scope / "mlp" / "c_proj", config.intermediate_size, hidden_) {}

  nn::Value operator()(const nn::Value& x, nn::Pass& p) const {
    std::vector<nn::Value> parts = nn::split(query_key_value_(nn::to_precision(norm1_(x, p), p), p),
                                             {hidden_, hidden_, hidden_}, p);
    nn::Value attended = output_(attend({.value = std::move(parts[2]),
                                         .key = std::move(parts[1]),
                                         .query = std::move(parts[0])},
                                        attention_, p),
                                 p);
    attended = nn::dropout(std::move(attended),
                           {dropout_, attention_.layer, DropoutSite::kAttentionOutput}, p);
    const nn::Value h = nn::add({nn::read_tokens(x, attention_.layer, p), std::move(attended)}, p);
    nn::Value fed =
        down_(nn::activate(up_(nn::to_precision(norm2_(h, p), p), p), activation_, p), p);
    fed = nn::dropout(std::move(fed), {dropout_, attention_.layer, DropoutSite::kFeedForwardOutput},
                      p);
    return nn::add({h, std::move(fed)}, p);
  }

 private:
  static double scale_of(const ModelConfig& config, int64_t layer) {
    const int64_t size = config.hidden_size / config.num_attention_heads;
    const double scale = config.decoder.scale_attn_weights ? 1.0 / std::sqrt(size) : 1.0;
    return config.decoder.scale_attn_by_inverse_layer_idx ? scale / static_cast<double>(layer + 1)
                                                          : scale;
  }

  nn::AttentionOptions attention_;
  int64_t hidden_;
  double dropout_;
  Activation activation_;
  nn::LayerNorm norm1_;
  nn::TransposedLinear query_key_value_, output_;
  nn::LayerNorm norm2_;
  nn::TransposedLinear up_, down_;
};

class Gpt2Backbone final : public Backbone {
 public:
  Gpt2Backbone(const nn::Scope& scope, const ModelConfig& config)
      : dropout_(config.decoder.embd_pdrop),
        words_(scope / "wte", config.vocab_size, config.hidden_size, ParameterRole::kWordEmbedding),
        positions_(scope / "wpe", config.max_position_embeddings, config.hidden_size),
        layers_(make_layers<Gpt2Layer>(scope / "h", config)) {}

  nn::Value operator()(const ModelInput& input, nn::Pass& p) override {
    const int64_t first = input.cache == nullptr ? 0 : input.cache->length;
    const Tensor positions =
        p.layout() ? p.layout()->positions
                   : at::arange(first, first + input.input_ids.size(1), input.input_ids.options());
    nn::Value x =
        nn::add({words_(without_padding(input.input_ids, p), p), positions_(positions, p)}, p);
    return nn::sequence(layers_, nn::dropout(std::move(x), {.p = dropout_}, p), p);
  }
  [[nodiscard]] const Weight& word_embedding() const override { return words_.weight(); }
  [[nodiscard]] std::optional<int64_t> last_layer() const override {
    return std::ssize(layers_) - 1;
  }

 private:
  double dropout_;
  nn::Embedding words_, positions_;
  std::vector<Gpt2Layer> layers_;
};

class Gpt2 final : public DecoderFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "gpt2"; }
  [[nodiscard]] std::string class_prefix() const override { return "GPT2"; }
  [[nodiscard]] std::string lm_class() const override { return "GPT2LMHeadModel"; }
  [[nodiscard]] std::string backbone_name() const override { return "transformer"; }
  [[nodiscard]] bool has_transposed_linear() const override { return true; }

  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.vocab_size = 50257;
    config.max_position_embeddings = 1024;
    config.layer_norm_eps = 1e-5;
    config.hidden_act = "gelu_new";
    config.bos_token_id = 50256;
    config.decoder.eos_token_ids = {50256};
    config.decoder.resid_pdrop = config.decoder.embd_pdrop = 0.1;
    config.decoder.rope_parameters.clear();
    config.tie_word_embeddings = true;
    config.other_fields =
        R"({"summary_type": "cls_index", "summary_use_proj": true, "summary_activation": null,
            "summary_proj_to_labels": true, "summary_first_dropout": 0.1,
            "add_cross_attention": false})";
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return {{"vocab_size", &c.vocab_size, 1, kMostTokens},
            {"n_positions", &c.max_position_embeddings, 4, kLongestSequence},
            {"n_embd", &c.hidden_size, 1, 65536},
            {"n_layer", &c.num_hidden_layers, 1, 512},
            {"n_head", &c.num_attention_heads, 1, 1024},
            {"n_inner", &c.decoder.n_inner, 1, 1 << 20},
            {"activation_function", &c.hidden_act},
            {"resid_pdrop", &c.decoder.resid_pdrop, 0.0, 0.99},
            {"embd_pdrop", &c.decoder.embd_pdrop, 0.0, 0.99},
            {"attn_pdrop", &c.attention_probs_dropout_prob, 0.0, 0.99},
            optional_field("classifier_dropout", &c.classifier_dropout, 0.0, 0.99),
            {"layer_norm_epsilon", &c.layer_norm_eps, 0.0, 1.0},
            {"initializer_range", &c.initializer_range, 0.0, 10.0},
            {"pad_token_id", &c.decoder.pad_token_id, -1, kMostTokens},
            {"bos_token_id", &c.bos_token_id, 0, kMostTokens},
            {"eos_token_id", &c.decoder.eos_token_ids, 0, kMostTokens},
            {"tie_word_embeddings", &c.tie_word_embeddings},
            {"scale_attn_weights", &c.decoder.scale_attn_weights},
            {"scale_attn_by_inverse_layer_idx", &c.decoder.scale_attn_by_inverse_layer_idx},
            {"reorder_and_upcast_attn", &c.decoder.reorder_and_upcast_attn}};
  }

  void complete(ModelConfig& config, const Refuse& refuse) const override {
    config.intermediate_size = config.decoder.n_inner.value_or(4 * config.hidden_size);
    DecoderFamily::complete(config, refuse);
    if (config.hidden_size % config.num_attention_heads != 0) {
      refuse("n_embd " + std::to_string(config.hidden_size) + " does not divide by n_head " +
             std::to_string(config.num_attention_heads));
    }
  }

  [[nodiscard]] std::optional<int64_t> padding_row(const ModelConfig& /*config*/,
                                                   const Parameter& /*parameter*/) const override {
    return std::nullopt;
  }
  [[nodiscard]] TiedNames tied_names(const ModelConfig& config) const override {
    if (!config.tie_word_embeddings) return {};
    return {{"transformer.wte.weight", "lm_head.weight"}};
  }
  // GPT-2's initialisation: scales the last matrices by 1 / sqrt(2 L), so that the residual stream
  // of all layers together keeps its variance.
  [[nodiscard]] double fresh_share(const ModelConfig& config,
                                   std::string_view parameter) const override {
    if (!parameter.ends_with("c_proj.weight")) return 1.0;
    return 1.0 / std::sqrt(2.0 * static_cast<double>(config.num_hidden_layers));
  }

  [[nodiscard]] std::unique_ptr<Backbone> make_backbone(
      const nn::Scope& scope, const ModelConfig& config,
      std::optional<Head> /*head*/) const override {
    return std::make_unique<Gpt2Backbone>(scope, config);
  }

  [[nodiscard]] std::optional<DecoderNorm> last_norm(const nn::Scope& backbone,
                                                     const ModelConfig& config) const override {
    return nn::LayerNorm(backbone / "ln_f", config.hidden_size, config.layer_norm_eps);
  }

 protected:
  [[nodiscard]] const char* token_classifier_name() const override { return "classifier"; }
};

}  // namespace

const Architecture& gpt2_architecture() {
  static const Gpt2 kGpt2;
  return kGpt2;
}

}  // namespace finetune
