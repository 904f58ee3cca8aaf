// SPDX-License-Identifier: MIT
#include "model/decoder.h"

namespace finetune {
namespace {

// Black et al. 2022, and Pythia: attention and feed-forward network side by side.
class GptNeoX final : public DecoderFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "gpt_neox"; }
  [[nodiscard]] std::string class_prefix() const override { return "GPTNeoX"; }
  [[nodiscard]] std::string backbone_name() const override { return "gpt_neox"; }
  [[nodiscard]] StoredNames stored_names() const override {
    return {{"^embed_out.", {"lm_head."}}};
  }

  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.vocab_size = 50432;
    config.hidden_size = 6144;
    config.intermediate_size = 24576;
    config.num_hidden_layers = 44;
    config.num_attention_heads = 64;
    config.max_position_embeddings = 2048;
    config.hidden_act = "gelu";
    config.classifier_dropout = 0.1;
    config.bos_token_id = 0;
    config.decoder.rms_norm_eps = 1e-5;
    config.decoder.attention_bias = true;
    config.decoder.use_parallel_residual = true;
    config.other_fields = R"({"is_decoder": false})";
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    RopeParameters& rope = c.decoder.rope_parameters[""];
    ConfigFields old = {old_name("rotary_pct", &rope.partial_rotary_factor, 0.0, 1.0),
                        old_name("rotary_emb_base", &rope.rope_theta, 1e-3, 1e15)};
    return with_fields(
        with_fields(std::move(old),
                    without_fields(DecoderFamily::fields(c),
                                   {"rms_norm_eps", "num_key_value_heads", "rope_parameters"})),
        {{.name = "rope_parameters", .target = &c.decoder.rope_parameters, .reads_share = false},
         {"hidden_act", &c.hidden_act},
         {"layer_norm_eps", &c.decoder.rms_norm_eps, 0.0, 1.0},
         {"hidden_dropout", &c.decoder.resid_pdrop, 0.0, 0.99},
         {"attention_bias", &c.decoder.attention_bias},
         {"use_parallel_residual", &c.decoder.use_parallel_residual}});
  }

 protected:
  [[nodiscard]] std::optional<double> rotated_share() const override { return 0.25; }
  [[nodiscard]] const char* token_classifier_name() const override { return "classifier"; }
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = decoder_options(config);
    options.names.words = "embed_in";
    options.names.attention = "attention";
    options.names.query_key_value = "query_key_value";
    options.names.output = "dense";
    options.names.last_norm = "final_layer_norm";
    options.norms_come = DecoderOptions::NormsCome::kFirst;
    options.has_layer_norms = true;
    options.has_padding_row = false;
    options.is_parallel = config.decoder.use_parallel_residual;
    options.fuses_qkv = options.fuses_by_head = true;
    options.ungated_up = "dense_h_to_4h";
    options.ungated_down = "dense_4h_to_h";
    options.feed_forward_bias = true;
    options.embedding_dropout = config.decoder.resid_pdrop;
    drop_residuals(config.decoder.resid_pdrop, options);
    return options;
  }
};

}  // namespace

const Architecture& gpt_neox_architecture() {
  static const GptNeoX kGptNeoX;
  return kGptNeoX;
}

}  // namespace finetune
