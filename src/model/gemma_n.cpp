// SPDX-License-Identifier: MIT
#include "model/gemma_n.h"

#include <algorithm>
#include <cmath>

#include "finetune/base/text.h"

namespace finetune {
namespace {

int64_t first_shared(const ModelConfig& config) {
  return config.num_hidden_layers - config.decoder.num_kv_shared_layers;
}

void check_shared_keys(const ModelConfig& config, const Architecture::Refuse& refuse) {
  const std::vector<std::string>& types = config.decoder.layer_types;
  const int64_t shared = config.decoder.num_kv_shared_layers;
  if (shared >= config.num_hidden_layers) {
    refuse(format_text("num_kv_shared_layers {} is not below num_hidden_layers {}", shared,
                       config.num_hidden_layers));
  }
  const auto begin = types.begin() + first_shared(config);
  for (auto type = begin; type != types.end(); ++type) {
    if (std::find(types.begin(), begin, *type) != begin) continue;
    refuse(
        format_text("num_kv_shared_layers {}: layer {} is of {}, of which no earlier layer has "
                    "keys",
                    shared, type - types.begin(), *type));
  }
}

}  // namespace

void GemmaNFamily::set_defaults(ModelConfig& config) const {
  DecoderFamily::set_defaults(config);
  config.hidden_act = "gelu_pytorch_tanh";
  config.bos_token_id = 2;
  config.tie_word_embeddings = true;
  config.decoder.head_dim = 256;
  config.decoder.pad_token_id = 0;
  config.decoder.eos_token_ids = {1};
  config.decoder.sliding_window = 512;
}

ConfigFields GemmaNFamily::fields(ModelConfig& c) const {
  DecoderConfig& own = c.decoder;
  ConfigFields fields = without_fields(DecoderFamily::fields(c), {"classifier_dropout"});
  add_window_fields(fields, c);
  return with_fields(
      std::move(fields),
      {{"hidden_activation", &c.hidden_act},
       {"head_dim", &own.head_dim, 1, 4096},
       {"attention_bias", &own.attention_bias},
       {"final_logit_softcapping", &own.final_logit_softcapping, 1e-3, 1e6},
       {"num_kv_shared_layers", &own.num_kv_shared_layers, 0, 512},
       {"vocab_size_per_layer_input", &own.vocab_size_per_layer_input, 1, kMostTokens},
       {"hidden_size_per_layer_input", &own.hidden_size_per_layer_input, 0, 65536}});
}

void GemmaNFamily::complete(ModelConfig& config, const Refuse& refuse) const {
  if (config.hidden_act == "gelu") config.hidden_act = "gelu_pytorch_tanh";  // as in Gemma
  DecoderFamily::complete(config, refuse);
  check_shared_keys(config, refuse);
}

std::optional<int64_t> GemmaNFamily::padding_row(const ModelConfig& config,
                                                 const Parameter& parameter) const {
  if (parameter.name().ends_with("embed_tokens_per_layer.weight")) {
    return config.decoder.pad_token_id;
  }
  return DecoderFamily::padding_row(config, parameter);
}

// Google's files have keys and values of layers that do not use them.
bool GemmaNFamily::ignores(const ModelConfig& config, std::string_view name) const {
  const size_t layers = name.find("layers.");
  const size_t attention = name.find(".self_attn.");
  if (layers == std::string_view::npos || attention == std::string_view::npos) return false;
  const std::string_view part = name.substr(attention + std::string_view(".self_attn.").size());
  const bool is_of_keys = part.starts_with("k_proj.") || part.starts_with("v_proj.") ||
                          part.starts_with("k_norm.") || part.starts_with("v_norm.");
  const std::string number(name.substr(layers + 7, attention - layers - 7));
  const bool is_number = !number.empty() && number.size() < 6 &&
                         number.find_first_not_of("0123456789") == std::string::npos;
  return is_of_keys && is_number && std::stoll(number) >= first_shared(config);
}

int64_t GemmaNFamily::keys_of(const ModelConfig& config, int64_t layer) {
  const std::vector<std::string>& types = config.decoder.layer_types;
  if (layer < first_shared(config)) return layer;
  int64_t source = first_shared(config) - 1;
  while (types[static_cast<size_t>(source)] != types[static_cast<size_t>(layer)]) --source;
  return source;
}

DecoderOptions GemmaNFamily::options(const ModelConfig& config) const {
  const DecoderConfig& own = config.decoder;
  DecoderOptions options = decoder_options(config);
  options.norms.after_attention = "post_attention_layernorm";
  options.norms.before_feed_forward = "pre_feedforward_layernorm";
  options.norms.after_feed_forward = "post_feedforward_layernorm";
  options.query_key_norm = DecoderOptions::QueryKeyNorm::kOfHeads;
  options.norms_values = true;
  options.query_scale = 1.0;
  options.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  if (own.num_kv_shared_layers > 0) {
    for (int64_t layer = 0; layer < options.layers; ++layer) {
      options.keys_of_layer.push_back(keys_of(config, layer));
    }
  }
  options.per_layer_input = {.vocabulary = own.vocab_size_per_layer_input,
                             .layers = options.layers,
                             .hidden = config.hidden_size,
                             .size = own.hidden_size_per_layer_input,
                             .epsilon = own.rms_norm_eps,
                             .activation = options.activation,
                             .padding_row = own.pad_token_id.value_or(-1)};
  rotate_by_layer_type(config, options);
  return options;
}

}  // namespace finetune
