// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>

#include "finetune/base/text.h"
#include "finetune/nn/elementwise.h"
#include "model/gemma_n.h"

namespace finetune {
namespace {

constexpr double kNoClip = 120.0;  // altup_coef_clip of all files, which no coefficient comes near

struct AltUpOptions {
  int64_t hidden = 0, streams = 0, active = 0;
  bool scales_output = true;
  double epsilon = 1e-6;
};

// Stream i of [B, T, S, C].
nn::Value stream(const nn::Value& x, int64_t i, nn::Pass& p) {
  return p.differentiate(
      {x}, {}, [i](const std::vector<Tensor>& in) { return in[0].select(-2, i).contiguous(); });
}

// Alternating updates (Baykal et al. 2023): of S streams of hidden states a layer computes one, and
// predicts and corrects all of them.
class AltUp {
 public:
  AltUp(const nn::Scope& scope, const AltUpOptions& o)
      : options_(o),
        output_scale_(scope.parameter("correct_output_scale", {o.hidden})),
        correction_(scope / "correction_coefs", o.streams, o.streams, /*has_bias=*/false),
        prediction_(scope / "prediction_coefs", o.streams, o.streams * o.streams,
                    /*has_bias=*/false),
        router_(scope / "modality_router", o.hidden, o.streams, /*has_bias=*/false),
        norm_(scope / "router_norm", o.hidden, o.epsilon) {}

  // x_j + sum over i of p_ji x_i, with p of the active stream; [B, T, S, C].
  [[nodiscard]] nn::Value predict(const nn::Value& x, nn::Pass& p) const {
    nn::Value shares = prediction_(modalities(stream(x, options_.active, p), p), p);
    return p.differentiate({x, std::move(shares)}, {}, [](const std::vector<Tensor>& in) {
      const Tensor rows = in[0].flatten(0, 1);  // [N, S, C]
      const Tensor matrix = in[1].to(rows.scalar_type()).view({-1, rows.size(1), rows.size(1)});
      return (rows + at::bmm(matrix, rows)).view(in[0].sizes());
    });
  }

  // prediction_j + (1 + c_j) (activated - prediction of the active stream).
  [[nodiscard]] nn::Value correct(nn::Value predictions, const nn::Value& activated,
                                  nn::Pass& p) const {
    nn::Value shares = correction_(modalities(activated, p), p);
    return p.differentiate({std::move(predictions), activated, std::move(shares)}, {},
                           [active = options_.active](const std::vector<Tensor>& in) {
                             const Tensor news = in[1] - in[0].select(-2, active);
                             const Tensor factors = in[2].to(in[0].scalar_type()) + 1.0;
                             return in[0] + factors.unsqueeze(-1) * news.unsqueeze(-2);
                           });
  }

  // What the layer's own input is combined with.
  [[nodiscard]] nn::Value output(const nn::Value& corrected, nn::Pass& p) const {
    nn::Value active = stream(corrected, options_.active, p);
    if (!options_.scales_output) return active;
    return p.differentiate({std::move(active)}, {output_scale_},
                           [](const std::vector<Tensor>& in) { return in[0] * in[1]; });
  }

 private:
  // tanh(W RMSNorm(x) / C), [B, T, S]
  [[nodiscard]] nn::Value modalities(const nn::Value& x, nn::Pass& p) const {
    nn::Value routed = nn::scale(norm_(x, p), 1.0 / static_cast<double>(options_.hidden), p);
    return p.differentiate({router_(std::move(routed), p)}, {}, [](const std::vector<Tensor>& in) {
      return in[0].to(at::kFloat).tanh().to(in[0].scalar_type());
    });
  }

  AltUpOptions options_;
  Weight output_scale_;  // [C]
  nn::Linear correction_, prediction_, router_;
  nn::RmsNorm norm_;
};

// x + RMSNorm(W V x) with a small rank (Menghani et al. 2024).
class Laurel {
 public:
  Laurel(const nn::Scope& scope, int64_t hidden, int64_t rank, double epsilon)
      : left_(scope / "linear_left", hidden, rank, /*has_bias=*/false),
        right_(scope / "linear_right", rank, hidden, /*has_bias=*/false),
        norm_(scope / "post_laurel_norm", hidden, epsilon) {}
  nn::Value operator()(const nn::Value& x, nn::Pass& p) const {
    return nn::add({x, norm_(right_(left_(x, p), p), p)}, p);
  }

 private:
  nn::Linear left_, right_;
  nn::RmsNorm norm_;
};

class Gemma3nLayer {
 public:
  Gemma3nLayer(const nn::Scope& scope, const ModelConfig& config, int64_t layer,
               const DecoderOptions& all, const AltUpOptions& streams)
      : Gemma3nLayer(scope, config, options_of_layer(all, layer), streams,
                     config.decoder.activation_sparsity_pattern[static_cast<size_t>(layer)],
                     layer) {}

  nn::Value operator()(const nn::Value& x, const std::shared_ptr<LayerValues>& values,
                       nn::Pass& p) const {
    nn::Value predictions = alt_up_.predict(x, p);
    nn::Value active = stream(predictions, active_, p);
    const nn::Value normed = before_attention_(active, p);
    nn::Value laurel = laurel_(normed, p);
    nn::Value attended = after_attention_(attention_(normed, *values, p), p);
    const nn::Value h =
        nn::scale(nn::add({std::move(active), std::move(attended), std::move(laurel)}, p),
                  1.0 / std::sqrt(2.0), p);
    nn::Value fed = after_feed_forward_(feed_forward_(before_feed_forward_(h, p), p), p);
    const nn::Value activated = nn::add({h, std::move(fed)}, p);
    nn::Value corrected = alt_up_.correct(std::move(predictions), activated, p);
    nn::Value own =
        input_(alt_up_.output(corrected, p), values->inputs[static_cast<size_t>(layer_)], p);
    // All streams but the first.
    return p.differentiate(
        {std::move(corrected), std::move(own)}, {}, [](const std::vector<Tensor>& in) {
          const Tensor others = in[0].narrow(-2, 1, in[0].size(-2) - 1) + in[1].unsqueeze(-2);
          return at::cat({in[0].narrow(-2, 0, 1), others}, -2);
        });
  }

 private:
  Gemma3nLayer(const nn::Scope& scope, const ModelConfig& config, const DecoderOptions& o,
               const AltUpOptions& streams, double sparsity, int64_t layer)
      : layer_(layer),
        active_(streams.active),
        attention_(scope / "self_attn", o, layer),
        feed_forward_(scope / "mlp", {.size = o.hidden,
                                      .intermediate = o.intermediate,
                                      .activation = o.activation,
                                      .sparsity = sparsity}),
        before_attention_(scope / "input_layernorm", o.hidden, o.epsilon),
        after_attention_(scope / "post_attention_layernorm", o.hidden, o.epsilon),
        before_feed_forward_(scope / "pre_feedforward_layernorm", o.hidden, o.epsilon),
        after_feed_forward_(scope / "post_feedforward_layernorm", o.hidden, o.epsilon),
        alt_up_(scope / "altup", streams),
        laurel_(scope / "laurel", o.hidden, config.decoder.laurel_rank, o.epsilon),
        input_(scope, o.per_layer_input) {}

  int64_t layer_, active_;
  DecoderAttention attention_;
  nn::GatedFeedForward feed_forward_;
  nn::RmsNorm before_attention_, after_attention_, before_feed_forward_, after_feed_forward_;
  AltUp alt_up_;
  Laurel laurel_;
  PerLayerInput input_;
};

// Embeddings, the streams that start from them, layers, and the mean of all streams.
class Gemma3nDecoder final : public Backbone {
 public:
  Gemma3nDecoder(const nn::Scope& scope, const ModelConfig& config, const DecoderOptions& options)
      : config_(config),
        padding_row_(config.decoder.pad_token_id.value_or(-1)),
        embedding_scale_(options.embedding_scale),
        words_(scope / "embed_tokens", config.vocab_size, config.hidden_size,
               ParameterRole::kWordEmbedding) {
    const DecoderConfig& own = config.decoder;
    const AltUpOptions streams = {.hidden = config.hidden_size,
                                  .streams = own.altup_num_inputs,
                                  .active = own.altup_active_idx,
                                  .scales_output = own.altup_correct_scale,
                                  .epsilon = own.rms_norm_eps};
    layers_ = make_layers<Gemma3nLayer>(scope / "layers", config, options, streams);
    // Which last_norm() takes.
    (void)nn::RmsNorm(scope / "norm", config.hidden_size, own.rms_norm_eps);
    inputs_.emplace(scope, options.per_layer_input);
    const auto make = [&](const char* name, std::vector<nn::Linear>& projections) {
      for (int64_t i = 0; i + 1 < own.altup_num_inputs; ++i) {
        projections.emplace_back(scope / name / i, config.hidden_size, config.hidden_size,
                                 /*has_bias=*/false);
      }
    };
    make("altup_projections", starts_);
    make("altup_unembed_projections", ends_);
  }

  nn::Value operator()(const ModelInput& input, nn::Pass& p) override {
    const Tensor ids = without_padding(input.input_ids, p);
    const nn::Value words = nn::scale(words_(ids, p, padding_row_), embedding_scale_, p);
    const auto values = std::make_shared<LayerValues>();
    values->inputs = (*inputs_)(ids, words, p);
    std::vector<nn::Value> streams = {words};
    for (const nn::Linear& start : starts_) {
      streams.push_back(like(words, start(nn::to_factor(words, p), p), p));
    }
    nn::Value x = p.differentiate(std::move(streams), {},
                                  [](const std::vector<Tensor>& in) { return at::stack(in, -2); });
    x = nn::sequence(layers_, std::move(x), p, values);
    const nn::Value first = stream(x, 0, p);
    std::vector<nn::Value> ends = {first};
    for (size_t i = 0; i < ends_.size(); ++i) {
      nn::Value other = nn::to_factor(stream(x, static_cast<int64_t>(i) + 1, p), p);
      ends.push_back(like(first, ends_[i](std::move(other), p), p));
    }
    const double share = 1.0 / static_cast<double>(ends.size());
    return nn::scale(nn::add(ends, p), share, p);
  }

  [[nodiscard]] std::vector<nn::Rotation> rotations(const ModelInput& input,
                                                    const TokenLayout* layout) const override {
    return rope_rotations(config_, input, layout);
  }
  [[nodiscard]] const Weight& word_embedding() const override { return words_.weight(); }

 private:
  // x with the root mean square of `model`.
  static nn::Value like(const nn::Value& model, nn::Value x, nn::Pass& p) {
    return p.differentiate({model, std::move(x)}, {}, [](const std::vector<Tensor>& in) {
      const Tensor wide = in[1].to(in[0].scalar_type());
      const Tensor target = in[0].square().mean(-1, true).sqrt();
      return wide * target / wide.square().mean(-1, true).clamp_min(1e-5).sqrt();
    });
  }

  ModelConfig config_;
  int64_t padding_row_;
  double embedding_scale_;
  nn::Embedding words_;
  std::vector<Gemma3nLayer> layers_;
  std::optional<PerLayerInputs> inputs_;
  std::vector<nn::Linear> starts_, ends_;
};

// Gemma Team 2025, the language model.
class Gemma3n final : public GemmaNFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "gemma3n_text"; }
  [[nodiscard]] std::string class_prefix() const override { return "Gemma3nText"; }
  [[nodiscard]] std::string lm_class() const override { return "Gemma3nForCausalLM"; }

  void set_defaults(ModelConfig& config) const override {
    GemmaNFamily::set_defaults(config);
    config.vocab_size = 262400;
    config.hidden_size = 2048;
    config.num_hidden_layers = 35;
    config.num_attention_heads = 8;
    config.max_position_embeddings = 32768;
    DecoderConfig& own = config.decoder;
    own.intermediate_sizes = {16384};
    own.num_key_value_heads = 2;
    own.num_kv_shared_layers = 15;
    own.final_logit_softcapping = 30.0;
    own.rope_parameters = {{"full_attention", {.rope_theta = 1e6}}, {"sliding_attention", {}}};
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    DecoderConfig& own = c.decoder;
    return with_fields(
        without_fields(GemmaNFamily::fields(c), {"intermediate_size"}),
        {{"intermediate_size", &own.intermediate_sizes, 1, 1 << 20},
         {"activation_sparsity_pattern", &own.activation_sparsity_pattern, 0.0, 0.9999},
         {"altup_num_inputs", &own.altup_num_inputs, 2, 64},
         {"altup_active_idx", &own.altup_active_idx, 0, 63},
         {"altup_coef_clip", &own.altup_coef_clip, 0.0, 1e9},
         {"altup_correct_scale", &own.altup_correct_scale},
         {"laurel_rank", &own.laurel_rank, 1, 65536}});
  }

  void complete(ModelConfig& config, const Refuse& refuse) const override {
    DecoderConfig& own = config.decoder;
    const auto layers = static_cast<size_t>(config.num_hidden_layers);
    if (own.intermediate_sizes.empty()) refuse("intermediate_size must be a number or a list");
    if (own.intermediate_sizes.size() == 1) {
      own.intermediate_sizes.resize(layers, own.intermediate_sizes[0]);
    }
    if (own.activation_sparsity_pattern.empty()) {
      own.activation_sparsity_pattern.assign(layers, 0.0);
      if (layers > 10) std::fill_n(own.activation_sparsity_pattern.begin(), 10, 0.95);
    }
    const auto check = [&](const char* field, size_t entries) {
      if (entries == layers) return;
      refuse(format_text("{} has {} entries, but num_hidden_layers is {}", field, entries, layers));
    };
    check("intermediate_size", own.intermediate_sizes.size());
    check("activation_sparsity_pattern", own.activation_sparsity_pattern.size());
    config.intermediate_size = *std::ranges::max_element(own.intermediate_sizes);
    if (own.hidden_size_per_layer_input < 1) {
      refuse("hidden_size_per_layer_input 0 is not available");
    }
    if (own.altup_active_idx >= own.altup_num_inputs) {
      refuse(format_text("altup_active_idx {} is not below altup_num_inputs {}",
                         own.altup_active_idx, own.altup_num_inputs));
    }
    if (own.altup_coef_clip.value_or(kNoClip) < kNoClip) {
      refuse("altup_coef_clip below 120 is not available: coefficients are not clipped");
    }
    GemmaNFamily::complete(config, refuse);
  }

  [[nodiscard]] std::unique_ptr<Backbone> make_backbone(
      const nn::Scope& scope, const ModelConfig& config,
      std::optional<Head> /*head*/) const override {
    return std::make_unique<Gemma3nDecoder>(scope, config, options(config));
  }

 protected:
  [[nodiscard]] std::vector<std::string> fresh_layer_types(
      const ModelConfig& config) const override {
    return layer_types(config, [](int64_t layer) { return (layer + 1) % 5 != 0; });
  }
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = GemmaNFamily::options(config);
    options.norm_order = DecoderOptions::NormOrder::kAfterProjections;
    for (const int64_t size : config.decoder.intermediate_sizes) {
      options.sizes_of_layer.push_back(
          {.intermediate = size, .kv_heads = options.kv_heads, .head_dim = options.head_dim});
    }
    return options;
  }
};

}  // namespace

const Architecture& gemma3n_text_architecture() {
  static const Gemma3n kGemma3n;
  return kGemma3n;
}

}  // namespace finetune
