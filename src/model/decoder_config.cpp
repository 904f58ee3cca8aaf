// SPDX-License-Identifier: MIT
// The fields of config.json that families of decoders share, and the checks of their values.
#include <algorithm>
#include <cmath>

#include "finetune/base/json.h"
#include "model/decoder.h"
#include "model/rope.h"

namespace finetune {
namespace {

void check_ids(const ModelConfig& config, const Architecture::Refuse& refuse) {
  const auto check = [&](const char* name, int64_t id) {
    if (id < config.vocab_size) return;
    refuse(std::string(name) + " " + std::to_string(id) + " lies beyond vocab_size " +
           std::to_string(config.vocab_size));
  };
  if (config.decoder.pad_token_id) check("pad_token_id", *config.decoder.pad_token_id);
}

}  // namespace

int64_t head_dim_of(const ModelConfig& config, const std::string& layers) {
  const DecoderConfig& own = config.decoder;
  const int64_t usual = own.head_dim.value_or(config.hidden_size / config.num_attention_heads);
  const auto found = std::ranges::find(own.layer_types, layers);
  if (!own.per_layer_config || found == own.layer_types.end()) return usual;
  const auto layer = own.per_layer_config->find(found - own.layer_types.begin());
  return layer == own.per_layer_config->end() ? usual : layer->second.head_dim.value_or(usual);
}

void check_rope(const ModelConfig& config, const std::string& layers, const RopeParameters& rope,
                const Architecture::Refuse& refuse) {
  const std::string name = layers.empty() ? "rope_parameters" : "rope_parameters." + layers;
  check_known(name + ": rope_type", rope.rope_type, rope_types(), refuse);
  const auto require = [&](bool there, const char* member) {
    if (there) return;
    refuse(name + ": rope_type '" + rope.rope_type + "' needs '" + member +
           "', which is not there");
  };
  const std::string& type = rope.rope_type;
  if (type == "linear" || type == "dynamic" || type == "llama3") {
    require(rope.factor.has_value(), "factor");
  }
  if (type == "llama3") {
    require(rope.low_freq_factor.has_value(), "low_freq_factor");
    require(rope.high_freq_factor.has_value(), "high_freq_factor");
    if (*rope.low_freq_factor >= *rope.high_freq_factor) {
      refuse(name + ": low_freq_factor " + format_double(*rope.low_freq_factor) +
             " is not below high_freq_factor " + format_double(*rope.high_freq_factor));
    }
  }
  if (type == "llama3" || type == "yarn" || type == "longrope") {
    require(rope.original_max_position_embeddings.has_value(), "original_max_position_embeddings");
  }
  const int64_t head_dim = head_dim_of(config, layers);
  const int64_t rotated = rotated_size(rope, head_dim);
  if (rotated % 2 != 0) {
    refuse(name + ": " + std::to_string(rotated) + " of head_dim " + std::to_string(head_dim) +
           " values are rotated, which is no even number");
  }
  if (type == "dynamic" && rotated <= 2) {
    refuse(name + ": rope_type 'dynamic' needs more than 2 rotated values, but head_dim is " +
           std::to_string(head_dim));
  }
  if (type != "longrope") return;
  const auto check_factors = [&](const char* member, const std::vector<double>& factors) {
    require(!factors.empty(), member);
    if (static_cast<int64_t>(factors.size()) == rotated / 2) return;
    refuse(name + "." + member + " has " + std::to_string(factors.size()) +
           " numbers, but half of the rotated part of a head (head_dim " +
           std::to_string(head_dim) + ") is " + std::to_string(rotated / 2));
  };
  check_factors("short_factor", rope.short_factor);
  check_factors("long_factor", rope.long_factor);
}

void check_layer_types(const ModelConfig& config, const Architecture::Refuse& refuse,
                       const std::vector<std::string>& known) {
  const std::vector<std::string>& types = config.decoder.layer_types;
  if (types.empty()) return;
  if (static_cast<int64_t>(types.size()) != config.num_hidden_layers) {
    refuse("layer_types has " + std::to_string(types.size()) +
           " entries, but num_hidden_layers is " + std::to_string(config.num_hidden_layers));
  }
  for (const std::string& type : types) {
    if (std::ranges::find(known, type) == known.end()) {
      refuse("layer_types has '" + type + "', but only '" + known[0] + "' and '" + known[1] +
             "' are available");
    }
    if (type == "sliding_attention" && !config.decoder.sliding_window) {
      refuse("layer_types has 'sliding_attention', but sliding_window is null");
    }
  }
}

void refuse_query_key_norms(const ModelConfig& config, const Architecture::Refuse& refuse) {
  if (config.decoder.qk_layernorm) refuse("qk_layernorm true is not available; write false");
}

void add_expert_fields(ConfigFields& fields, ModelConfig& c) {
  DecoderConfig& own = c.decoder;
  fields = with_fields(std::move(fields),
                       {{"num_experts_per_tok", &own.num_experts_per_tok, 1, 4096},
                        {"norm_topk_prob", &own.norm_topk_prob},
                        {"output_router_logits", &own.output_router_logits},
                        {"router_aux_loss_coef", &own.router_aux_loss_coef, 0.0, 1e6}});
}

void check_experts(const ModelConfig& config, const Architecture::Refuse& refuse,
                   const std::string& count) {
  const DecoderConfig& own = config.decoder;
  if (own.output_router_logits) {
    refuse(
        "output_router_logits true is not available: the router's auxiliary loss is not; write "
        "false");
  }
  if (!own.num_experts) refuse(count + " is null");
  if (own.num_experts_per_tok > *own.num_experts) {
    refuse("num_experts_per_tok " + std::to_string(own.num_experts_per_tok) + " is above " + count +
           " " + std::to_string(*own.num_experts));
  }
}

nn::ExpertsOptions experts_of(const ModelConfig& config, int64_t intermediate) {
  const DecoderConfig& own = config.decoder;
  return {.size = config.hidden_size,
          .intermediate = intermediate,
          .experts = *own.num_experts,
          .per_token = own.num_experts_per_tok,
          .activation = find_activation(config.hidden_act),
          .normalizes = own.norm_topk_prob};
}

void add_window_fields(ConfigFields& fields, ModelConfig& c) {
  fields.push_back({"sliding_window", &c.decoder.sliding_window, 1, kMostPositions});
  fields.push_back({"layer_types", &c.decoder.layer_types});
}

std::vector<std::string> layer_types(const ModelConfig& config,
                                     const std::function<bool(int64_t)>& is_sliding) {
  std::vector<std::string> types;
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    types.emplace_back(is_sliding(i) ? "sliding_attention" : "full_attention");
  }
  return types;
}

void DecoderFamily::set_defaults(ModelConfig& config) const {
  config.hidden_act = "silu";
  config.initializer_range = 0.02;
  config.bos_token_id = 1;
  config.decoder.eos_token_ids = {2};
  config.decoder.pad_token_id.reset();
  config.tie_word_embeddings = false;
}

ConfigFields DecoderFamily::fields(ModelConfig& c) const {
  return {{"vocab_size", &c.vocab_size, 1, kMostTokens},
          {"hidden_size", &c.hidden_size, 1, 65536},
          {"intermediate_size", &c.intermediate_size, 1, 1 << 20},
          {"num_hidden_layers", &c.num_hidden_layers, 1, 512},
          {"num_attention_heads", &c.num_attention_heads, 1, 1024},
          {"num_key_value_heads", &c.decoder.num_key_value_heads, 1, 1024},
          {"max_position_embeddings", &c.max_position_embeddings, 4, kMostPositions},
          {"initializer_range", &c.initializer_range, 0.0, 10.0},
          {"rms_norm_eps", &c.decoder.rms_norm_eps, 0.0, 1.0},
          {"pad_token_id", &c.decoder.pad_token_id, -1, kMostTokens},
          {"bos_token_id", &c.bos_token_id, 0, kMostTokens},
          {"eos_token_id", &c.decoder.eos_token_ids, 0, kMostTokens},
          {"tie_word_embeddings", &c.tie_word_embeddings},
          {"attention_dropout", &c.decoder.attention_dropout, 0.0, 0.99},
          optional_field("classifier_dropout", &c.classifier_dropout, 0.0, 0.99),
          {"rope_parameters", &c.decoder.rope_parameters}};
}

void DecoderFamily::complete(ModelConfig& config, const Refuse& refuse) const {
  DecoderConfig& own = config.decoder;
  if (own.pad_token_id && *own.pad_token_id < 0) own.pad_token_id.reset();
  config.pad_token_id = own.pad_token_id.value_or(0);
  config.eos_token_id.reset();
  if (!own.eos_token_ids.empty()) config.eos_token_id = own.eos_token_ids.front();
  if (!own.num_key_value_heads) own.num_key_value_heads = config.num_attention_heads;
  if (!own.head_dim) {
    if (config.hidden_size % config.num_attention_heads != 0) {
      refuse("hidden_size " + std::to_string(config.hidden_size) +
             " does not divide by num_attention_heads " +
             std::to_string(config.num_attention_heads) + ", and there is no head_dim");
    }
    own.head_dim = config.hidden_size / config.num_attention_heads;
  }
  if (config.num_attention_heads % *own.num_key_value_heads != 0) {
    refuse("num_attention_heads " + std::to_string(config.num_attention_heads) +
           " does not divide by num_key_value_heads " + std::to_string(*own.num_key_value_heads));
  }
  check_ids(config, refuse);
  if (own.layer_types.empty()) own.layer_types = fresh_layer_types(config);
  check_layer_types(config, refuse, known_layer_types());
  for (auto& [layers, rope] : own.rope_parameters) {
    const std::string& type = rope.rope_type;
    if (!reads_alpha()) rope.alpha.reset();
    if (!reads_llama_4_scaling()) rope.llama_4_scaling_beta.reset();
    if (!rope.partial_rotary_factor) rope.partial_rotary_factor = rotated_share();
    if (type == "default" && !rotated_share()) rope.partial_rotary_factor.reset();
    if (!rope.original_max_position_embeddings && (type == "llama3" || type == "yarn")) {
      refuse((layers.empty() ? "rope_parameters" : "rope_parameters." + layers) + ": rope_type '" +
             type + "' needs 'original_max_position_embeddings', which is not there");
    }
    check_rope(config, layers, rope, refuse);
  }
}

}  // namespace finetune
