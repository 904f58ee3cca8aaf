// SPDX-License-Identifier: MIT
#include "model/decoder.h"

namespace finetune {
namespace {

// LG AI Research 2025: norms after the sublayers, of queries and keys, too; where layers have
// windows, those without one do not rotate.
class Exaone4 final : public DecoderFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "exaone4"; }
  [[nodiscard]] std::string class_prefix() const override { return "Exaone4"; }

  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.vocab_size = 102400;
    config.hidden_size = 4096;
    config.intermediate_size = 16384;
    config.num_hidden_layers = 32;
    config.num_attention_heads = config.decoder.num_key_value_heads.emplace(32);
    config.max_position_embeddings = 2048;
    config.bos_token_id = 0;
    config.decoder.rms_norm_eps = 1e-5;
    config.decoder.sliding_window = 4096;
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    ConfigFields fields = with_fields(
        DecoderFamily::fields(c), {{"hidden_act", &c.hidden_act},
                                   {"sliding_window_pattern", &c.decoder.layer_pattern, 0, 512}});
    add_window_fields(fields, c);
    // No field of transformers' class, which reads it all the same.
    if (c.decoder.head_dim.value_or(0) != c.hidden_size / c.num_attention_heads) {
      fields.push_back(optional_field("head_dim", &c.decoder.head_dim, 1, 4096));
    }
    return fields;
  }

  void complete(ModelConfig& config, const Refuse& refuse) const override {
    const std::optional<NumberOrText>& pattern = config.decoder.layer_pattern;
    if (config.decoder.layer_types.empty() && pattern && !std::get_if<int64_t>(&*pattern)) {
      refuse("sliding_window_pattern is '" + std::get<std::string>(*pattern) +
             "', which transformers does not read; write layer_types");
    }
    DecoderFamily::complete(config, refuse);
    if (!config.decoder.sliding_window) config.decoder.layer_pattern = 0;
  }

 protected:
  [[nodiscard]] std::vector<std::string> fresh_layer_types(
      const ModelConfig& config) const override {
    const DecoderConfig& own = config.decoder;
    const int64_t every = own.layer_pattern ? std::get<int64_t>(*own.layer_pattern) : 0;
    const bool slides = own.sliding_window && every > 0;
    return layer_types(config, [&](int64_t layer) { return slides && (layer + 1) % every != 0; });
  }
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = decoder_options(config);
    options.norms = kNormsOfOutputs;
    options.query_key_norm = DecoderOptions::QueryKeyNorm::kOfHeads;
    for (size_t i = 0; i < options.rope_of_layer.size(); ++i) {
      const bool rotates = !config.decoder.sliding_window || options.window_of_layer[i] > 0;
      options.rope_of_layer[i] = rotates ? 0 : -1;
    }
    return options;
  }
};

}  // namespace

const Architecture& exaone4_architecture() {
  static const Exaone4 kExaone4;
  return kExaone4;
}

}  // namespace finetune
