// SPDX-License-Identifier: MIT
#include <cmath>

#include "finetune/base/error.h"
#include "finetune/model/model_options.h"
#include "model/activation_names.h"
#include "model/decoder.h"

namespace finetune {
namespace {

nn::LayerNorm make_norm(const nn::Scope& scope, const ModelConfig& config) {
  return {scope, config.hidden_size, config.layer_norm_eps, config.encoder.norm_bias};
}

// "Wqkv"; of a decoder "q_proj", "k_proj" and "v_proj".
class ModernBertProjections {
 public:
  ModernBertProjections(const nn::Scope& scope, const ModelConfig& config) {
    const int64_t size = config.hidden_size;
    const bool has_bias = config.decoder.attention_bias;
    if (!is_causal(config)) {
      all_.emplace(scope / "Wqkv", size, size, size, has_bias);
      return;
    }
    for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
      alone_.emplace_back(scope / name, size, size, has_bias);
    }
  }
  nn::Projections operator()(const nn::Value& x, nn::Pass& p) const {
    if (all_) return (*all_)(x, p);
    return {.value = alone_[2](x, p), .key = alone_[1](x, p), .query = alone_[0](x, p)};
  }

 private:
  std::optional<nn::FusedProjections> all_;
  std::vector<nn::Linear> alone_;
};

// h = x + Wo Attention(LN(x)), y = h + Wo(f(a) * b) with [a, b] = Wi LN(h). Layer 0 has no
// attention norm, because the embeddings end with a norm.
class ModernBertLayer {
 public:
  ModernBertLayer(const nn::Scope& scope, const ModelConfig& config, int64_t layer)
      : is_local_(config.decoder.layer_types[static_cast<size_t>(layer)] == "sliding_attention"),
        attention_{.heads = config.num_attention_heads,
                   .layer = layer,
                   .dropout = config.decoder.attention_dropout,
                   .causal = is_causal(config),
                   .window = is_local_ ? window_of(config) : 0},
        attention_norm_(layer == 0 ? std::nullopt
                                   : std::optional(make_norm(scope / "attn_norm", config))),
        projections_(scope / "attn", config),
        output_(scope / "attn" / "Wo", config.hidden_size, config.hidden_size,
                config.decoder.attention_bias),
        feed_forward_norm_(make_norm(scope / "mlp_norm", config)),
        feed_forward_(scope / "mlp", {.size = config.hidden_size,
                                      .intermediate = config.intermediate_size,
                                      .activation = find_activation(config.hidden_act),
                                      .has_bias = config.decoder.mlp_bias,
                                      .is_fused = true,
                                      .gate_up = "Wi",
                                      .down = "Wo",
                                      .dropout = {config.encoder.mlp_dropout, layer,
                                                  DropoutSite::kFeedForwardHidden}}) {}

  nn::Value operator()(const nn::Value& x, nn::Pass& p) const {
    nn::Value normed = attention_norm_ ? (*attention_norm_)(x, p) : x;
    nn::Value of_attention = attended(std::move(normed), p);
    const nn::Value h =
        nn::add({nn::read_tokens(x, attention_.layer, p), std::move(of_attention)}, p);
    nn::Value n = nn::to_precision(feed_forward_norm_(h, p), p);
    return nn::add({h, feed_forward_(std::move(n), p)}, p);
  }

 private:
  // A token, and those on both sides or before it.
  static int64_t window_of(const ModelConfig& config) {
    const int64_t window = *config.decoder.sliding_window;
    return is_causal(config) ? window : window + 1;
  }

  [[nodiscard]] nn::Value attended(nn::Value x, nn::Pass& p) const {
    nn::Projections all = projections_(nn::to_precision(std::move(x), p), p);
    // In alphabetical order of layer types: full_attention, sliding_attention.
    const nn::Rotation& rotation = p.options().rotations[is_local_ ? 1 : 0];
    const int64_t head_size = all.query.tensor.size(-1) / attention_.heads;
    all = nn::rope(std::move(all), head_size, rotation, p);
    return nn::dropout(output_(nn::attend(std::move(all), attention_, p), p),
                       {attention_.dropout, attention_.layer, DropoutSite::kAttentionOutput}, p);
  }

  bool is_local_;
  nn::AttentionOptions attention_;
  std::optional<nn::LayerNorm> attention_norm_;
  ModernBertProjections projections_;
  nn::Linear output_;
  nn::LayerNorm feed_forward_norm_;
  nn::GatedFeedForward feed_forward_;
};

class ModernBertModel final : public Backbone {
 public:
  ModernBertModel(const nn::Scope& scope, const ModelConfig& config)
      : config_(config),
        words_(scope / "embeddings" / "tok_embeddings", config.vocab_size, config.hidden_size,
               ParameterRole::kWordEmbedding),
        norm_(make_norm(scope / "embeddings" / "norm", config)),
        layers_(make_layers<ModernBertLayer>(scope / "layers", config)),
        final_norm_(make_norm(scope / "final_norm", config)) {}

  nn::Value operator()(const ModelInput& input, nn::Pass& p) override {
    const nn::Value words = words_(without_padding(input.input_ids, p), p, config_.pad_token_id);
    nn::Value x = nn::dropout(norm_(words, p), {.p = config_.encoder.embedding_dropout}, p);
    return final_norm_(nn::sequence(layers_, std::move(x), p), p);
  }
  [[nodiscard]] std::vector<nn::Rotation> rotations(const ModelInput& input,
                                                    const TokenLayout* layout) const override {
    return rope_rotations(config_, input, layout,
                          config_.hidden_size / config_.num_attention_heads);
  }
  [[nodiscard]] const Weight& word_embedding() const override { return words_.weight(); }
  [[nodiscard]] std::optional<int64_t> last_layer() const override {
    return std::ssize(layers_) - 1;
  }

 private:
  ModelConfig config_;
  nn::Embedding words_;
  nn::LayerNorm norm_;
  std::vector<ModernBertLayer> layers_;
  nn::LayerNorm final_norm_;
};

// "head": LN(f(W h)), the first part of every head.
HeadTransform prediction_head(const nn::Scope& scope, const ModelConfig& config) {
  return {{scope / "dense", config.hidden_size, config.hidden_size, config.encoder.classifier_bias},
          find_activation(config.encoder.classifier_activation),
          make_norm(scope / "norm", config)};
}

// Warner et al. 2024
class ModernBert : public Architecture {
 public:
  [[nodiscard]] std::string model_type() const override { return "modernbert"; }
  [[nodiscard]] std::string class_prefix() const override { return "ModernBert"; }
  [[nodiscard]] std::string backbone_name() const override { return "model"; }
  [[nodiscard]] std::string lm_head_name() const override { return "decoder"; }
  [[nodiscard]] bool has_next_sentence_head() const override { return false; }
  [[nodiscard]] bool has_decoder_fields() const override { return false; }

  void set_defaults(ModelConfig& config) const override {
    config.vocab_size = 50368;
    config.intermediate_size = 1152;
    config.num_hidden_layers = 22;
    config.max_position_embeddings = 8192;
    config.layer_norm_eps = 1e-5;
    config.pad_token_id = 50283;
    config.bos_token_id = 50281;
    config.eos_token_id = config.sep_token_id = 50282;
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0;
    config.classifier_dropout = 0.0;
    config.type_vocab_size = 0;
    config.decoder.rope_parameters = {{"full_attention", {.rope_theta = 160000.0}},
                                      {"sliding_attention", {}}};
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    EncoderConfig& own = c.encoder;
    return with_fields(
        without_fields(Architecture::fields(c),
                       {"max_position_embeddings", "hidden_act", "layer_norm_eps",
                        "type_vocab_size", "hidden_dropout_prob", "attention_probs_dropout_prob"}),
        {{"max_position_embeddings", &c.max_position_embeddings, 4, kMostPositions},
         {"hidden_activation", &c.hidden_act},
         {"initializer_cutoff_factor", &own.initializer_cutoff_factor, 0.1, 1e6},
         {"norm_eps", &c.layer_norm_eps, 0.0, 1.0},
         {"norm_bias", &own.norm_bias},
         {"cls_token_id", &own.cls_token_id, 0, kMostTokens},
         {"sep_token_id", &c.sep_token_id, 0, kMostTokens},
         {"attention_bias", &c.decoder.attention_bias},
         {"attention_dropout", &c.decoder.attention_dropout, 0.0, 0.99},
         {"layer_types", &c.decoder.layer_types},
         optional_field("global_attn_every_n_layers", &own.global_attn_every_n_layers, 1, 512),
         {.name = "rope_parameters",
          .target = &c.decoder.rope_parameters,
          .scales_every_layer = true},
         {"local_attention", &own.local_attention, 1, kMostPositions},
         {"embedding_dropout", &own.embedding_dropout, 0.0, 0.99},
         {"mlp_bias", &c.decoder.mlp_bias},
         {"mlp_dropout", &own.mlp_dropout, 0.0, 0.99},
         {"decoder_bias", &own.decoder_bias},
         {"classifier_pooling", &own.classifier_pooling},
         {"classifier_bias", &own.classifier_bias},
         {"classifier_activation", &own.classifier_activation},
         {"deterministic_flash_attn", &own.deterministic_flash_attn},
         {"sparse_prediction", &own.sparse_prediction},
         {"sparse_pred_ignore_index", &own.sparse_pred_ignore_index, -kMostTokens, kMostTokens}});
  }

  void complete(ModelConfig& config, const Refuse& refuse) const override {
    Architecture::complete(config, refuse);
    const EncoderConfig& own = config.encoder;
    check_known("classifier_pooling", own.classifier_pooling, {"cls", "mean"}, refuse);
    check_known("classifier_activation", own.classifier_activation, activation_names(), refuse);
    if (!config.classifier_dropout) config.classifier_dropout = 0.0;
    config.decoder.head_dim = config.hidden_size / config.num_attention_heads;
    if (!finetune::is_causal(config) || !config.decoder.sliding_window) {
      config.decoder.sliding_window = own.local_attention / 2;
    }
    if (config.decoder.layer_types.empty()) {
      const int64_t every = own.global_attn_every_n_layers.value_or(3);
      config.decoder.layer_types =
          layer_types(config, [&](int64_t layer) { return layer % every != 0; });
    }
    check_layer_types(config, refuse);
    for (auto& [layers, rope] : config.decoder.rope_parameters) {
      if (rope.rope_type == "default") rope.partial_rotary_factor.reset();
      check_rope(config, layers, rope, refuse);
    }
  }

  [[nodiscard]] std::unique_ptr<Backbone> make_backbone(
      const nn::Scope& scope, const ModelConfig& config,
      std::optional<Head> /*head*/) const override {
    return std::make_unique<ModernBertModel>(scope, config);
  }

  [[nodiscard]] std::unique_ptr<ModelHead> make_head(const nn::Scope& root,
                                                     const ModelConfig& config,
                                                     std::optional<Head> head) const override {
    HeadTransform transform = prediction_head(root / "head", config);
    if (!head) {
      return std::make_unique<DenseLmHead>(std::move(transform), root / "decoder", config,
                                           config.encoder.decoder_bias);
    }
    if (*head == Head::kPretraining) refuse_next_sentence_head(config);
    return std::make_unique<DenseClassifier>(
        std::move(transform), root / "classifier",
        DenseClassifierOptions{
            .outputs = count_outputs(config, *head),
            .tokens = tokens_read(*head, config.encoder.classifier_pooling == "mean"),
            .dropout = config.classifier_dropout.value_or(0.0)});
  }

  // transformers draws the padding's row as well.
  [[nodiscard]] std::optional<int64_t> padding_row(const ModelConfig& /*config*/,
                                                   const Parameter& /*parameter*/) const override {
    return std::nullopt;
  }
  // transformers' _init_weights: a truncated normal distribution, narrower for matrices that end a
  // residual branch.
  [[nodiscard]] double fresh_share(const ModelConfig& config,
                                   std::string_view parameter) const override {
    if (parameter == "classifier.weight") {
      const double range = config.initializer_range != 0.0 ? config.initializer_range : 0.02;
      return 1.0 / std::sqrt(static_cast<double>(config.hidden_size)) / range;
    }
    for (const char* name : {".Wo.weight", "head.dense.weight", "decoder.weight"}) {
      if (parameter.ends_with(name)) {
        return 1.0 / std::sqrt(2.0 * static_cast<double>(config.num_hidden_layers));
      }
    }
    return 1.0;
  }
  [[nodiscard]] std::optional<double> fresh_cutoff(const ModelConfig& config) const override {
    return config.encoder.initializer_cutoff_factor;
  }

  [[nodiscard]] TiedNames tied_names(const ModelConfig& config) const override {
    if (!config.tie_word_embeddings) return {};
    return {{"model.embeddings.tok_embeddings.weight", "decoder.weight"}};
  }
};

// Weller et al. 2025 (Ettin): the same layers, causal.
class ModernBertDecoder final : public ModernBert {
 public:
  [[nodiscard]] std::string model_type() const override { return "modernbert-decoder"; }
  [[nodiscard]] std::string class_prefix() const override { return "ModernBertDecoder"; }
  [[nodiscard]] bool is_causal() const override { return true; }
  [[nodiscard]] bool has_decoder_fields() const override { return true; }

  void set_defaults(ModelConfig& config) const override {
    ModernBert::set_defaults(config);
    config.decoder.eos_token_ids = {50282};
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(
        without_fields(ModernBert::fields(c),
                       {"eos_token_id", "classifier_pooling", "deterministic_flash_attn",
                        "sparse_prediction", "sparse_pred_ignore_index"}),
        {{"eos_token_id", &c.decoder.eos_token_ids, 0, kMostTokens},
         {"sliding_window", &c.decoder.sliding_window, 1, kMostPositions}});
  }

  void complete(ModelConfig& config, const Refuse& refuse) const override {
    ModernBert::complete(config, refuse);
    DecoderConfig& own = config.decoder;
    own.pad_token_id = config.pad_token_id;
    own.num_key_value_heads = config.num_attention_heads;
    config.eos_token_id.reset();
    if (!own.eos_token_ids.empty()) config.eos_token_id = own.eos_token_ids.front();
  }

  [[nodiscard]] std::unique_ptr<ModelHead> make_head(const nn::Scope& root,
                                                     const ModelConfig& config,
                                                     std::optional<Head> head) const override {
    if (head && *head != Head::kSequenceClassification) refuse_head(config);
    HeadTransform transform = prediction_head(root / (head ? "head" : "lm_head"), config);
    if (!head) {
      return std::make_unique<DenseLmHead>(std::move(transform), root / "decoder", config,
                                           config.encoder.decoder_bias);
    }
    return std::make_unique<DenseClassifier>(
        std::move(transform), root / "classifier",
        DenseClassifierOptions{.outputs = count_outputs(config, *head),
                               .tokens = TokensRead::kLast,
                               .has_bias = config.encoder.classifier_bias,
                               .padding = config.decoder.pad_token_id,
                               .dropout = config.classifier_dropout.value_or(0.0)});
  }

  [[nodiscard]] double fresh_share(const ModelConfig& config,
                                   std::string_view parameter) const override {
    return ModernBert::fresh_share(config, parameter == "lm_head.dense.weight"
                                               ? std::string_view("head.dense.weight")
                                               : parameter);
  }
};

}  // namespace

const Architecture& modernbert_decoder_architecture() {
  static const ModernBertDecoder kModernBertDecoder;
  return kModernBertDecoder;
}

const Architecture& modernbert_architecture() {
  static const ModernBert kModernBert;
  return kModernBert;
}

}  // namespace finetune
