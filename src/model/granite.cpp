// SPDX-License-Identifier: MIT
#include "model/decoder.h"

namespace finetune {
namespace {

// IBM 2024: Llama with a factor for embeddings, scores, what each sublayer adds, and logits.
class Granite : public DecoderFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "granite"; }
  [[nodiscard]] std::string class_prefix() const override { return "Granite"; }

  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.vocab_size = 32000;
    config.hidden_size = 4096;
    config.intermediate_size = 11008;
    config.num_hidden_layers = 32;
    config.num_attention_heads = 32;
    config.max_position_embeddings = 2048;
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    DecoderConfig& own = c.decoder;
    constexpr double kLeast = 1e-6, kMost = 1e6;
    return with_fields(DecoderFamily::fields(c),
                       {{"hidden_act", &c.hidden_act},
                        {"attention_bias", &own.attention_bias},
                        {"mlp_bias", &own.mlp_bias},
                        {"embedding_multiplier", &own.embedding_multiplier, kLeast, kMost},
                        {"logits_scaling", &own.logits_scaling, kLeast, kMost},
                        {"residual_multiplier", &own.residual_multiplier, kLeast, kMost},
                        {"attention_multiplier", &own.attention_multiplier, kLeast, kMost}});
  }

 protected:
  [[nodiscard]] bool has_sequence_classifier() const override { return false; }
  [[nodiscard]] bool has_token_classifier() const override { return false; }
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = decoder_options(config);
    options.embedding_scale = config.decoder.embedding_multiplier;
    options.residual_scale = config.decoder.residual_multiplier;
    options.query_scale = config.decoder.attention_multiplier;
    return options;
  }
};

// The same with a mixture of experts in each layer.
class GraniteMoe final : public Granite {
 public:
  [[nodiscard]] std::string model_type() const override { return "granitemoe"; }
  [[nodiscard]] std::string class_prefix() const override { return "GraniteMoe"; }

  void set_defaults(ModelConfig& config) const override {
    Granite::set_defaults(config);
    config.decoder.num_experts = 8;
    config.decoder.num_experts_per_tok = 2;
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    ConfigFields fields = without_fields(Granite::fields(c), {"mlp_bias"});
    add_expert_fields(fields, c);
    return with_fields(without_fields(std::move(fields), {"norm_topk_prob"}),
                       {{"num_local_experts", &c.decoder.num_experts, 1, 4096}});
  }

  void complete(ModelConfig& config, const Refuse& refuse) const override {
    check_experts(config, refuse, "num_local_experts");
    Granite::complete(config, refuse);
  }

 protected:
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override {
    DecoderOptions options = Granite::options(config);
    options.norms_come = DecoderOptions::NormsCome::kBeforeFeedForward;
    options.names.feed_forward = "block_sparse_moe";
    options.experts = experts_of(config, config.intermediate_size);
    options.experts.normalizes = true;
    options.experts.router = "router.layer";
    options.experts.stack = {.gate_up = "input_linear.weight", .down = "output_linear.weight"};
    return options;
  }
};

}  // namespace

const Architecture& granitemoe_architecture() {
  static const GraniteMoe kGraniteMoe;
  return kGraniteMoe;
}

const Architecture& granite_architecture() {
  static const Granite kGranite;
  return kGranite;
}

}  // namespace finetune
