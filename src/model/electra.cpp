// SPDX-License-Identifier: MIT
#include "finetune/base/error.h"
#include "model/activation.h"
#include "model/architecture.h"
#include "model/bert.h"

namespace finetune {
namespace {

// Clark et al. 2020: BERT whose embeddings may be narrower than its layers. The masked language
// model is the generator of its pretraining.
class Electra final : public Architecture {
 public:
  [[nodiscard]] std::string model_type() const override { return "electra"; }
  [[nodiscard]] std::string class_prefix() const override { return "Electra"; }
  [[nodiscard]] std::string backbone_name() const override { return "electra"; }
  [[nodiscard]] std::string lm_head_name() const override { return "generator_lm_head"; }
  [[nodiscard]] bool has_next_sentence_head() const override { return false; }

  void set_defaults(ModelConfig& config) const override {
    config.vocab_size = 30522;
    config.hidden_size = 256;
    config.num_attention_heads = 4;
    config.intermediate_size = 1024;
    config.pad_token_id = 0;
    config.bos_token_id.reset();
    config.eos_token_id.reset();
    config.encoder.embedding_size = 128;
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    EncoderConfig& own = c.encoder;
    return with_fields(Architecture::fields(c),
                       {{"embedding_size", &own.embedding_size, 1, 65536},
                        {"summary_type", &own.summary_type},
                        {"summary_use_proj", &own.summary_use_proj},
                        {"summary_activation", &own.summary_activation},
                        {"summary_last_dropout", &own.summary_last_dropout, 0.0, 0.99}});
  }

  void complete(ModelConfig& config, const Refuse& refuse) const override {
    Architecture::complete(config, refuse);
    const EncoderConfig& own = config.encoder;
    check_known("summary_type", own.summary_type, {"first"}, refuse);
    check_known("summary_activation", own.summary_activation, activation_names(), refuse);
    if (!own.summary_use_proj) refuse("summary_use_proj is false, which is not available");
  }

  [[nodiscard]] std::unique_ptr<Backbone> make_backbone(
      const nn::Scope& scope, const ModelConfig& config,
      std::optional<Head> /*head*/) const override {
    return EncoderModel::make<BertEmbeddings>(scope, config, std::nullopt,
                                              {.embedding_size = embedding_size(config)});
  }

  [[nodiscard]] std::unique_ptr<ModelHead> make_head(const nn::Scope& root,
                                                     const ModelConfig& config,
                                                     std::optional<Head> head) const override {
    if (!head) return generator_head(root, config);
    const int64_t outputs = count_outputs(config, *head);
    const nn::Scope classifier = root / "classifier";
    switch (*head) {
      case Head::kPretraining:
        refuse_next_sentence_head(config);
      case Head::kSequenceClassification:
        return first_token_classifier(classifier, config, find_activation("gelu"));
      case Head::kMultipleChoice:
        return std::make_unique<DenseClassifier>(
            HeadTransform(
                {root / "sequence_summary" / "summary", config.hidden_size, config.hidden_size},
                find_activation(config.encoder.summary_activation)),
            classifier,
            DenseClassifierOptions{.outputs = outputs,
                                   .dropout = config.encoder.summary_last_dropout});
      case Head::kTokenClassification:
        return std::make_unique<TokenClassifier>(classifier, config, outputs, head_dropout(config));
      case Head::kQuestionAnswering:
        return std::make_unique<TokenClassifier>(root / "qa_outputs", config, outputs, 0.0);
      case Head::kEmbedding:  // the bare model
      case Head::kDecision:
        break;
    }
    FT_CHECK(false, "a head without a class");
  }

  [[nodiscard]] TiedNames tied_names(const ModelConfig& config) const override {
    if (!config.tie_word_embeddings) return {};
    return {{"electra.embeddings.word_embeddings.weight", "generator_lm_head.weight"}};
  }

 private:
  static int64_t embedding_size(const ModelConfig& config) {
    return config.encoder.embedding_size.value_or(config.hidden_size);
  }

  static std::unique_ptr<ModelHead> generator_head(const nn::Scope& root, ModelConfig config) {
    const nn::Scope scope = root / "generator_predictions";
    const int64_t size = embedding_size(config);
    nn::LayerNorm norm(scope / "LayerNorm", size, config.layer_norm_eps);
    nn::Linear dense(scope / "dense", config.hidden_size, size);
    config.hidden_size = size;  // of the decoder's rows
    return std::make_unique<DenseLmHead>(
        HeadTransform(std::move(dense), find_activation("gelu"), std::move(norm)),
        root / "generator_lm_head", config, /*has_bias=*/true);
  }
};

}  // namespace

const Architecture& electra_architecture() {
  static const Electra kElectra;
  return kElectra;
}

}  // namespace finetune
