// SPDX-License-Identifier: MIT
#include "model/decoder.h"

#include <ATen/ops/arange.h>

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/nn/elementwise.h"
#include "model/rope.h"

namespace finetune {
namespace {

DecoderNorm norm_of(const nn::Scope& scope, const DecoderOptions& options) {
  if (options.has_layer_norms) return nn::LayerNorm(scope, options.hidden, options.epsilon);
  if (!options.has_norm_weights) return nn::RmsNorm(options.epsilon);
  return nn::RmsNorm(scope, options.hidden, options.epsilon, options.adds_one_to_norms);
}

std::optional<DecoderNorm> make_norm(const nn::Scope& scope, const char* name,
                                     const DecoderOptions& options) {
  if (name == nullptr) return std::nullopt;
  return norm_of(scope / name, options);
}

nn::Value normed(nn::Value x, const std::optional<DecoderNorm>& norm, nn::Pass& p) {
  if (!norm) return nn::to_factor(std::move(x), p);
  if (const auto* rms = std::get_if<nn::RmsNorm>(&*norm)) return (*rms)(x, p);
  return nn::to_precision(std::get<nn::LayerNorm>(*norm)(x, p), p);
}

nn::Value scaled(nn::Value x, double factor, nn::Pass& p) {
  return factor == 1.0 ? std::move(x) : nn::scale(std::move(x), factor, p);
}

nn::RmsNorm::OfSum normed(nn::Residual x, const std::optional<DecoderNorm>& norm, nn::Pass& p) {
  if (norm) {
    if (const auto* rms = std::get_if<nn::RmsNorm>(&*norm)) return rms->of_sum(x, p);
  }
  const nn::Value sum = nn::whole(std::move(x), p);
  return {.sum = sum, .normed = normed(sum, norm, p)};
}

LayerNetwork make_feed_forward(const nn::Scope& scope, const DecoderOptions& o, int64_t layer) {
  const bool has_experts = o.has_experts.empty() || o.has_experts[static_cast<size_t>(layer)];
  if (o.experts.experts > 0 && has_experts) return nn::MixtureOfExperts(scope, o.experts);
  if (o.ungated_up != nullptr) {
    return nn::FeedForward(scope, {.size = o.hidden,
                                   .intermediate = o.intermediate,
                                   .activation = o.activation,
                                   .has_xielu = o.has_xielu,
                                   .has_bias = o.feed_forward_bias,
                                   .up = o.ungated_up,
                                   .down = o.ungated_down});
  }
  return nn::GatedFeedForward(scope, {.size = o.hidden,
                                      .intermediate = o.intermediate,
                                      .activation = o.activation,
                                      .has_bias = o.feed_forward_bias,
                                      .is_fused = o.fuses_gate_up,
                                      .gate = o.names.gate,
                                      .up = o.names.up,
                                      .down = o.names.down});
}

TokenMixer make_mixer(const nn::Scope& scope, const DecoderOptions& o, int64_t layer) {
  using Mixer = DecoderOptions::Mixer;
  const auto index = static_cast<size_t>(layer);
  const Mixer mixer = o.mixer_of_layer.empty() ? Mixer::kAttention : o.mixer_of_layer[index];
  if (mixer == Mixer::kConvolution) {
    return nn::GatedConvolution(scope / o.names.convolution, o.hidden, o.convolution,
                                o.convolution_bias, layer);
  }
  if (mixer == Mixer::kDeltaNet) {
    return nn::GatedDeltaNet(scope / o.names.delta_net, o.delta_net, layer);
  }
  return DecoderAttention(scope / o.names.attention, o, layer);
}

}  // namespace

DecoderOptions options_of_layer(const DecoderOptions& options, int64_t layer) {
  DecoderOptions own = options;
  if (options.sizes_of_layer.empty()) return own;
  const DecoderOptions::LayerSizes& sizes = options.sizes_of_layer[static_cast<size_t>(layer)];
  own.intermediate = sizes.intermediate;
  own.kv_heads = sizes.kv_heads;
  own.head_dim = sizes.head_dim;
  return own;
}

DecoderOptions decoder_options(const ModelConfig& config) {
  const DecoderConfig& own = config.decoder;
  DecoderOptions options = {
      .hidden = config.hidden_size,
      .intermediate = config.intermediate_size,
      .layers = config.num_hidden_layers,
      .heads = config.num_attention_heads,
      .kv_heads = *own.num_key_value_heads,
      .head_dim = *own.head_dim,
      .epsilon = own.rms_norm_eps,
      .qkv_bias = own.attention_bias,
      .output_bias = own.attention_bias,
      .feed_forward_bias = own.mlp_bias,
      .activation = config.hidden_act == "xielu" ? nullptr : find_activation(config.hidden_act),
      .attention_dropout = own.attention_dropout};
  options.rope_of_layer.assign(static_cast<size_t>(options.layers), 0);
  options.window_of_layer.assign(static_cast<size_t>(options.layers), 0);
  FT_CHECK(own.layer_types.empty() || own.layer_types.size() == options.window_of_layer.size(),
           "layer_types has an entry for each layer");
  for (size_t i = 0; i < own.layer_types.size(); ++i) {
    if (own.layer_types[i] == "sliding_attention") options.window_of_layer[i] = *own.sliding_window;
  }
  return options;
}

void slide_every_layer(const ModelConfig& config, DecoderOptions& options) {
  std::ranges::fill(options.window_of_layer, config.decoder.sliding_window.value_or(0));
}

void drop_residuals(double dropout, DecoderOptions& options) {
  options.attention_output_dropout = options.feed_forward_dropout = dropout;
}

void rotate_by_layer_type(const ModelConfig& config, DecoderOptions& options) {
  for (size_t i = 0; i < options.rope_of_layer.size(); ++i) {  // types in alphabetical order
    options.rope_of_layer[i] = config.decoder.layer_types[i] == "sliding_attention" ? 1 : 0;
  }
}

DecoderAttention::DecoderAttention(const nn::Scope& scope, const DecoderOptions& o, int64_t layer)
    : attention_{.heads = o.heads,
                 .kv_heads = o.kv_heads,
                 .layer = layer,
                 .dropout = o.attention_dropout,
                 .causal = o.causal,
                 .window = o.window_of_layer[static_cast<size_t>(layer)],
                 .scale = o.query_scale,
                 .softcap = o.softcap},
      rope_(o.rope_of_layer[static_cast<size_t>(layer)]),
      rotates_neighbours_(o.rotates_neighbours),
      rotates_before_norms_(o.rotates_before_norms),
      norms_heads_(o.query_key_norm == DecoderOptions::QueryKeyNorm::kOfHeads),
      is_gated_(o.gates_attention),
      keys_of_(o.keys_of_layer.empty() ? layer : o.keys_of_layer[static_cast<size_t>(layer)]),
      is_shared_(keys_of_ == layer && std::ranges::count(o.keys_of_layer, layer) > 1) {
  using Order = DecoderOptions::NormOrder;
  const int64_t queries = o.heads * o.head_dim;
  const int64_t keys = o.kv_heads * o.head_dim;
  const DecoderNames& names = o.names;
  if (o.has_sinks) sinks_ = scope.parameter("sinks", {o.heads});
  if (o.fuses_qkv) {
    const auto make_output = [&] {
      output_.emplace(scope / names.output, queries, o.hidden, o.output_bias);
    };
    if (!o.fuses_by_head) make_output();  // transformers registers it first
    query_key_value_.emplace(scope / names.query_key_value, o.hidden, queries, keys, o.qkv_bias,
                             o.fuses_by_head ? o.heads : 1);
    if (o.fuses_by_head) make_output();
    return;
  }
  query_.emplace(scope / "q_proj", o.hidden, o.gates_attention ? 2 * queries : queries, o.qkv_bias);
  make_norms(scope, o, Order::kAfterQueries);
  if (keys_of_ == layer) {
    key_.emplace(scope / "k_proj", o.hidden, keys, o.qkv_bias);
    if (!o.values_are_keys || attention_.window > 0) {
      value_.emplace(scope / "v_proj", o.hidden, keys, o.qkv_bias);
    }
    if (o.norms_values) value_norm_.emplace(o.epsilon);
  }
  make_norms(scope, o, Order::kAfterProjections);
  output_.emplace(scope / names.output, queries, o.hidden, o.output_bias);
  make_norms(scope, o, Order::kLast);
}

// Called at each point of the registration; makes the norms that are registered there.
void DecoderAttention::make_norms(const nn::Scope& scope, const DecoderOptions& o,
                                  DecoderOptions::NormOrder order) {
  using Order = DecoderOptions::NormOrder;
  if (o.query_key_norm == DecoderOptions::QueryKeyNorm::kNone) return;
  const auto make_norm = [&](const char* name, int64_t heads) {
    if (!o.has_norm_weights) return nn::RmsNorm(o.epsilon);
    return nn::RmsNorm(scope / name, norms_heads_ ? o.head_dim : heads * o.head_dim, o.epsilon,
                       o.adds_one_to_norms);
  };
  const Order of_queries = o.norm_order == Order::kLast ? Order::kLast : Order::kAfterQueries;
  if (order == of_queries) query_norm_ = make_norm(o.names.query_norm, o.heads);
  if (order == o.norm_order && keys_of_ == attention_.layer) {
    key_norm_ = make_norm(o.names.key_norm, o.kv_heads);
  }
}

nn::Projections DecoderAttention::project(const nn::Value& x, std::optional<nn::Value>& gate,
                                          nn::Pass& p) const {
  if (query_key_value_) return (*query_key_value_)(x, p);
  const nn::Linear::SharedInput shared(
      x, {value_ ? &*value_ : nullptr, key_ ? &*key_ : nullptr, &*query_}, p);
  nn::Projections all = {.value = value_ ? (*value_)(x, shared, p) : nn::Value(),
                         .key = key_ ? (*key_)(x, shared, p) : nn::Value(),
                         .query = (*query_)(nn::query_tokens(x, attention_, p), shared, p)};
  if (!value_) all.value = all.key;
  if (!is_gated_) return all;
  const int64_t queries = all.query.tensor.size(-1) / 2;
  std::vector<nn::Value> parts = nn::split(
      nn::parts_together(std::move(all.query), attention_.heads, 2, p), {queries, queries}, p);
  all.query = std::move(parts[0]);
  gate = std::move(parts[1]);
  return all;
}

nn::Value DecoderAttention::normed_heads(nn::Value x, int64_t heads,
                                         const std::optional<nn::RmsNorm>& norm,
                                         nn::Pass& p) const {
  if (!norm || !x.tensor.defined()) return x;
  if (!norms_heads_) return (*norm)(x, p);
  return nn::joined_heads((*norm)(nn::split_heads(std::move(x), heads, p), p), p);
}

nn::Projections DecoderAttention::normed(nn::Projections all, nn::Pass& p) const {
  all.key = normed_heads(std::move(all.key), attention_.kv_heads, key_norm_, p);
  all.query = normed_heads(std::move(all.query), attention_.heads, query_norm_, p);
  return all;
}

void DecoderAttention::share(nn::Projections& all, LayerValues& shared, nn::Pass& p) const {
  const auto of = static_cast<size_t>(keys_of_);
  if (is_shared_) {
    const size_t layers = std::max(shared.keys.size(), of + 1);
    shared.keys.resize(layers);
    shared.values.resize(layers);
    shared.keys[of].set(all.key, p);
    shared.values[of].set(all.value, p);
  } else if (keys_of_ != attention_.layer) {
    all.key = shared.keys[of].get();
    all.value = shared.values[of].get();
  }
}

nn::Projections DecoderAttention::rotated(nn::Projections all, nn::Pass& p) const {
  if (rope_ < 0) return all;
  const int64_t head_size = all.query.tensor.size(-1) / attention_.heads;
  const nn::Rotation& rotation = p.options().rotations[static_cast<size_t>(rope_)];
  all = rotates_neighbours_ ? nn::rope_of_neighbours(std::move(all), head_size, rotation, p)
                            : nn::rope(std::move(all), head_size, rotation, p);
  if (rotation.query_scale.defined()) {
    const Tensor scale = nn::rotation_of(rotation, all.query.tensor, p).query_scale;
    all.query = nn::scaled_tokens(std::move(all.query), scale, p);
  }
  return all;
}

nn::Value DecoderAttention::operator()(const nn::Value& x, LayerValues& shared, nn::Pass& p) const {
  std::optional<nn::Value> gate;
  nn::Projections all = project(x, gate, p);
  if (value_norm_) {
    all.value = normed_heads(std::move(all.value), attention_.kv_heads, value_norm_, p);
  }
  all = rotates_before_norms_ ? normed(rotated(std::move(all), p), p)
                              : rotated(normed(std::move(all), p), p);
  share(all, shared, p);
  nn::Value attended =
      nn::attend(std::move(all), attention_, p,
                 keys_of_ == attention_.layer ? std::nullopt : std::optional(keys_of_), sinks_);
  if (gate) {
    attended = nn::gated(nn::read_tokens(std::move(*gate), attention_.layer, p),
                         std::move(attended), find_activation("sigmoid"), p);
  }
  return (*output_)(std::move(attended), p);
}

DecoderLayer::DecoderLayer(const nn::Scope& scope, const DecoderOptions& options, int64_t layer)
    : attention_dropout_{options.attention_output_dropout, layer, DropoutSite::kAttentionOutput},
      feed_forward_dropout_{options.feed_forward_dropout, layer, DropoutSite::kFeedForwardOutput},
      residual_scale_(options.residual_scale),
      is_parallel_(options.is_parallel),
      layer_(layer) {
  const DecoderOptions o = options_of_layer(options, layer);
  if (o.scales_layers) scale_ = scope.parameter("layer_scalar", {1}, ParameterRole::kConstant);
  using NormsCome = DecoderOptions::NormsCome;
  if (o.norms_come == NormsCome::kFirst) make_norms(scope, o);
  mixer_.emplace(make_mixer(scope, o, layer));
  if (o.norms_come == NormsCome::kBeforeFeedForward) make_norms(scope, o);
  feed_forward_.emplace(make_feed_forward(scope / o.names.feed_forward, o, layer));
  if (o.norms_come == NormsCome::kLast) make_norms(scope, o);
  if (o.per_layer_input.size > 0) input_.emplace(scope, o.per_layer_input);
}

void DecoderLayer::make_norms(const nn::Scope& scope, const DecoderOptions& o) {
  const DecoderNorms& names = o.norms;
  before_attention_ = make_norm(scope, names.before_attention, o);
  if (!names.before_come_first) after_attention_ = make_norm(scope, names.after_attention, o);
  before_feed_forward_ = make_norm(scope, names.before_feed_forward, o);
  if (names.before_come_first) after_attention_ = make_norm(scope, names.after_attention, o);
  after_feed_forward_ = make_norm(scope, names.after_feed_forward, o);
}

nn::Value DecoderLayer::attended(nn::Value x, LayerValues& values, nn::Pass& p) const {
  const auto mix = [&](const auto& own) -> nn::Value {
    if constexpr (std::is_same_v<std::decay_t<decltype(own)>, DecoderAttention>) {
      return own(std::exchange(x, {}), values, p);
    } else {
      return nn::read_tokens(own(std::exchange(x, {}), p), layer_, p);
    }
  };
  nn::Value y = std::visit(mix, *mixer_);
  y = normed(std::move(y), after_attention_, p);
  return scaled(nn::dropout(std::move(y), attention_dropout_, p), residual_scale_, p);
}

nn::Value DecoderLayer::fed_forward(nn::Value x, nn::Pass& p) const {
  nn::Value y = std::visit([&](const auto& own) { return own(std::move(x), p); }, *feed_forward_);
  y = normed(std::move(y), after_feed_forward_, p);
  return scaled(nn::dropout(std::move(y), feed_forward_dropout_, p), residual_scale_, p);
}

nn::Residual DecoderLayer::operator()(nn::Residual x, const std::shared_ptr<LayerValues>& values,
                                      nn::Pass& p) const {
  auto [start, to_attention] = normed(std::move(x), before_attention_, p);
  start = nn::read_tokens(std::move(start), layer_, p);
  if (is_parallel_) {
    nn::Value to_feed_forward = before_feed_forward_ ? normed(start, before_feed_forward_, p)
                                                     : nn::read_tokens(to_attention, layer_, p);
    nn::Value branch = attended(std::move(to_attention), *values, p);
    nn::Value fed = fed_forward(std::move(to_feed_forward), p);
    return {std::move(start), nn::add({std::move(branch), std::move(fed)}, p)};
  }
  nn::Value branch = attended(std::move(to_attention), *values, p);
  auto [h, to_feed_forward] =
      normed({std::move(start), std::move(branch)}, before_feed_forward_, p);
  nn::Residual y = {std::move(h), fed_forward(std::move(to_feed_forward), p)};
  return input_ || scale_.defined() ? with_input(std::move(y), *values, p) : y;
}

nn::Value DecoderLayer::with_input(nn::Residual x, const LayerValues& values, nn::Pass& p) const {
  nn::Value sum = nn::whole(std::move(x), p);
  if (input_) {
    nn::Value own =
        (*input_)(sum, nn::read_tokens(values.inputs[static_cast<size_t>(layer_)], layer_, p), p);
    sum = nn::add({std::move(sum), std::move(own)}, p);
  }
  return scale_.defined() ? nn::scaled_by(std::move(sum), scale_, p) : sum;
}

Decoder::Decoder(const nn::Scope& scope, const ModelConfig& config, const DecoderOptions& options)
    : config_(config),
      options_(options),
      padding_row_(options.has_padding_row ? config.decoder.pad_token_id.value_or(-1) : -1),
      words_(scope / options.names.words, config.vocab_size, config.hidden_size,
             ParameterRole::kWordEmbedding) {
  if (options.norms_embeddings) norm_.emplace(options.epsilon);
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    layers_.emplace_back(scope / "layers" / layer, options, layer);
  }
  if (options.per_layer_input.size == 0) return;
  (void)norm_of(scope / options.names.last_norm, options);  // which last_norm() takes
  inputs_.emplace(scope, options.per_layer_input);
}

nn::Value Decoder::operator()(const ModelInput& input, nn::Pass& p) {
  const Tensor ids = without_padding(input.input_ids, p);
  nn::Value x = words_(ids, p, padding_row_);
  x = scaled(std::move(x), options_.embedding_scale, p);
  x = nn::dropout(std::move(x), {.p = options_.embedding_dropout}, p);
  if (norm_) x = (*norm_)(x, p);
  const auto values = std::make_shared<LayerValues>();
  if (inputs_) values->inputs = (*inputs_)(ids, x, p);
  return nn::sequence(layers_, std::move(x), p, values);
}

std::vector<nn::Rotation> rope_rotations(const ModelConfig& config, const ModelInput& input,
                                         const TokenLayout* layout,
                                         std::optional<int64_t> head_dim) {
  std::vector<nn::Rotation> made;
  std::vector<int64_t> lengths = {input.input_ids.size(1)};
  if (layout != nullptr) {
    lengths.clear();
    for (int64_t row = 0; row < layout->rows(); ++row) lengths.push_back(layout->length(row));
  }
  const int64_t first = input.cache == nullptr ? 0 : input.cache->length;
  const Tensor positions =
      layout != nullptr ? layout->positions
                        : at::arange(first, first + lengths.front(), input.input_ids.options());
  for (const auto& [layers, rope] : config.decoder.rope_parameters) {
    made.push_back(rope_rotation(rope, head_dim ? *head_dim : head_dim_of(config, layers),
                                 config.max_position_embeddings, positions,
                                 {.tokens = lengths,
                                  .whole = layout != nullptr ? layout->whole_lengths : lengths,
                                  .before = first}));
    if (rope.llama_4_scaling_beta) {
      made.back().query_scale =
          llama_4_query_scale(rope, positions, first + *std::ranges::max_element(lengths));
    }
  }
  return made;
}

std::vector<nn::Rotation> Decoder::rotations(const ModelInput& input,
                                             const TokenLayout* layout) const {
  std::vector<nn::Rotation> made = rope_rotations(config_, input, layout);
  if (options_.rotates_backwards) {
    for (nn::Rotation& rotation : made) rotation.sin.neg_();
  }
  return made;
}

Architecture::TiedNames DecoderFamily::tied_names(const ModelConfig& config) const {
  if (!config.tie_word_embeddings) return {};
  return {{backbone_name() + "." + options(config).names.words + ".weight",
           lm_head_name() + ".weight"}};
}

std::optional<int64_t> DecoderFamily::padding_row(const ModelConfig& config,
                                                  const Parameter& parameter) const {
  const bool is_of_words = parameter.role() == ParameterRole::kWordEmbedding;
  return is_of_words && options(config).has_padding_row ? config.decoder.pad_token_id
                                                        : std::nullopt;
}

std::unique_ptr<Backbone> DecoderFamily::make_backbone(const nn::Scope& scope,
                                                       const ModelConfig& config,
                                                       std::optional<Head> /*head*/) const {
  return std::make_unique<Decoder>(scope, config, options(config));
}

std::optional<DecoderNorm> DecoderFamily::last_norm(const nn::Scope& backbone,
                                                    const ModelConfig& config) const {
  const DecoderOptions own = options(config);
  const nn::Scope scope = backbone / own.names.last_norm;
  if (auto made = scope.made("weight")) return nn::RmsNorm(std::move(*made), own.epsilon);
  return norm_of(scope, own);
}

std::unique_ptr<ModelHead> DecoderFamily::make_head(const nn::Scope& root,
                                                    const ModelConfig& config,
                                                    std::optional<Head> head) const {
  const bool of_tokens = head == Head::kTokenClassification;
  const bool is_there = !head ||
                        (head == Head::kSequenceClassification && has_sequence_classifier()) ||
                        (of_tokens && has_token_classifier());
  if (!is_there) refuse_head(config);
  DecoderNorm norm = *last_norm(root / backbone_name(), config);
  if (!head) {
    return std::make_unique<CausalLmHead>(root / lm_head_name(), std::move(norm), config,
                                          options(config).lm_head_bias);
  }
  return std::make_unique<DecoderClassifier>(
      std::move(norm), root / (of_tokens ? token_classifier_name() : "score"), config, of_tokens);
}

}  // namespace finetune
