// SPDX-License-Identifier: MIT
#include "model/decoder.h"

namespace finetune {
namespace {

// Tencent 2025: Llama with norms of the heads of queries and keys, after the rotation.
class HunYuanV1Dense final : public DecoderFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "hunyuan_v1_dense"; }
  [[nodiscard]] std::string class_prefix() const override { return "HunYuanDenseV1"; }

  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.vocab_size = 290943;
    config.hidden_size = 4096;
    config.intermediate_size = 11008;
    config.num_hidden_layers = 32;
    config.num_attention_heads = 32;
    config.max_position_embeddings = 2048;
    config.decoder.rms_norm_eps = 1e-5;
    config.decoder.pad_token_id = 0;
    config.other_fields = R"({"eod_token_id": 3, "pretraining_tp": 1})";
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(DecoderFamily::fields(c), {{"hidden_act", &c.hidden_act},
                                                  {"head_dim", &c.decoder.head_dim, 1, 4096},
                                                  {"attention_bias", &c.decoder.attention_bias}});
  }

 protected:
  [[nodiscard]] bool has_token_classifier() const override { return false; }
  [[nodiscard]] bool reads_alpha() const override { return true; }
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = decoder_options(config);
    options.names.query_norm = "query_layernorm";
    options.names.key_norm = "key_layernorm";
    options.query_key_norm = DecoderOptions::QueryKeyNorm::kOfHeads;
    options.rotates_before_norms = true;
    return options;
  }
};

}  // namespace

const Architecture& hunyuan_v1_dense_architecture() {
  static const HunYuanV1Dense kHunYuanV1Dense;
  return kHunYuanV1Dense;
}

}  // namespace finetune
