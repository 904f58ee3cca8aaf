// SPDX-License-Identifier: MIT
#include "finetune/base/error.h"
#include "model/activation.h"
#include "model/architecture.h"
#include "model/bert.h"

namespace finetune {
namespace {

BertLayerScopes layer_scopes(const nn::Scope& layer) {
  const nn::Scope attention = layer / "attention";
  return {attention / "q_lin",
          attention / "k_lin",
          attention / "v_lin",
          {attention / "out_lin", layer / "sa_layer_norm", layer / "ffn" / "lin1",
           layer / "ffn" / "lin2", layer / "output_layer_norm"}};
}

// Sanh et al. 2019
class DistilBert final : public Architecture {
 public:
  [[nodiscard]] std::string model_type() const override { return "distilbert"; }
  [[nodiscard]] std::string class_prefix() const override { return "DistilBert"; }
  [[nodiscard]] std::string backbone_name() const override { return "distilbert"; }
  [[nodiscard]] std::string lm_head_name() const override { return "vocab_projector"; }
  [[nodiscard]] bool has_next_sentence_head() const override { return false; }
  [[nodiscard]] bool has_decoder_fields() const override { return false; }

  void set_defaults(ModelConfig& config) const override {
    config.vocab_size = 30522;
    config.num_hidden_layers = 6;
    config.pad_token_id = 0;
    config.bos_token_id.reset();
    config.eos_token_id.reset();
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    ConfigFields own = without_fields(
        Architecture::fields(c),
        {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
         "type_vocab_size", "hidden_dropout_prob", "attention_probs_dropout_prob",
         "classifier_dropout", "layer_norm_eps", "hidden_act"});
    return with_fields(std::move(own),
                       {old_name("hidden_size", &c.hidden_size, 1, 65536),
                        old_name("num_hidden_layers", &c.num_hidden_layers, 1, 512),
                        old_name("num_attention_heads", &c.num_attention_heads, 1, 1024),
                        old_name("intermediate_size", &c.intermediate_size, 1, 1 << 20),
                        {"dim", &c.hidden_size, 1, 65536},
                        {"n_layers", &c.num_hidden_layers, 1, 512},
                        {"n_heads", &c.num_attention_heads, 1, 1024},
                        {"hidden_dim", &c.intermediate_size, 1, 1 << 20},
                        {"dropout", &c.hidden_dropout_prob, 0.0, 0.99},
                        {"attention_dropout", &c.attention_probs_dropout_prob, 0.0, 0.99},
                        {"activation", &c.hidden_act},
                        {"sinusoidal_pos_embds", &c.encoder.sinusoidal_pos_embds},
                        {"qa_dropout", &c.encoder.qa_dropout, 0.0, 0.99},
                        {"seq_classif_dropout", &c.encoder.seq_classif_dropout, 0.0, 0.99}});
  }

  void complete(ModelConfig& config, const Refuse& refuse) const override {
    Architecture::complete(config, refuse);
    if (config.encoder.sinusoidal_pos_embds) {
      refuse("sinusoidal_pos_embds is true, and only positions that are learned are available");
    }
  }

  [[nodiscard]] std::unique_ptr<Backbone> make_backbone(
      const nn::Scope& scope, const ModelConfig& config,
      std::optional<Head> /*head*/) const override {
    const BertOptions options = {
        .encoder = "transformer", .layer = layer_scopes, .drops_attention_output = false};
    return EncoderModel::make<BertEmbeddings>(scope, config, std::nullopt, options,
                                              EmbeddingTables{.types = false});
  }

  [[nodiscard]] std::unique_ptr<ModelHead> make_head(const nn::Scope& root,
                                                     const ModelConfig& config,
                                                     std::optional<Head> head) const override {
    const int64_t size = config.hidden_size;
    if (!head) {
      nn::Linear transform(root / "vocab_transform", size, size);
      nn::LayerNorm norm(root / "vocab_layer_norm", size, config.layer_norm_eps);
      return std::make_unique<DenseLmHead>(
          HeadTransform(std::move(transform), find_activation(config.hidden_act), std::move(norm)),
          root / "vocab_projector", config, /*has_bias=*/true);
    }
    const int64_t outputs = count_outputs(config, *head);
    switch (*head) {
      case Head::kPretraining:
        refuse_next_sentence_head(config);
      case Head::kSequenceClassification:
      case Head::kMultipleChoice:
        return std::make_unique<DenseClassifier>(
            HeadTransform({root / "pre_classifier", size, size}, find_activation("relu")),
            root / "classifier",
            DenseClassifierOptions{.outputs = outputs,
                                   .dropout = config.encoder.seq_classif_dropout});
      case Head::kTokenClassification:
        return std::make_unique<TokenClassifier>(root / "classifier", config, outputs,
                                                 config.hidden_dropout_prob);
      case Head::kQuestionAnswering:
        return std::make_unique<TokenClassifier>(root / "qa_outputs", config, outputs,
                                                 config.encoder.qa_dropout);
      case Head::kEmbedding:  // the bare model
      case Head::kDecision:
        break;
    }
    FT_CHECK(false, "a head without a class");
  }

  [[nodiscard]] TiedNames tied_names(const ModelConfig& config) const override {
    if (!config.tie_word_embeddings) return {};
    return {{"distilbert.embeddings.word_embeddings.weight", "vocab_projector.weight"}};
  }
};

}  // namespace

const Architecture& distilbert_architecture() {
  static const DistilBert kDistilBert;
  return kDistilBert;
}

}  // namespace finetune
