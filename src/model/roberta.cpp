// SPDX-License-Identifier: MIT
#include "finetune/base/error.h"
#include "model/activation.h"
#include "model/architecture.h"

namespace finetune {
namespace {

// Liu et al. 2019
class Roberta : public Architecture {
 public:
  [[nodiscard]] std::string model_type() const override { return "roberta"; }
  [[nodiscard]] std::string class_prefix() const override { return "Roberta"; }
  [[nodiscard]] std::string backbone_name() const override { return "roberta"; }
  [[nodiscard]] std::string lm_head_name() const override { return "lm_head"; }
  [[nodiscard]] bool has_next_sentence_head() const override { return false; }
  [[nodiscard]] bool positions_follow_padding() const override { return true; }

  [[nodiscard]] std::unique_ptr<Backbone> make_backbone(const nn::Scope& scope,
                                                        const ModelConfig& config,
                                                        std::optional<Head> head) const override {
    const bool pools = head == Head::kMultipleChoice || head == Head::kEmbedding;
    return EncoderModel::make<RobertaEmbeddings>(
        scope, config, pools ? std::optional(scope / "pooler" / "dense") : std::nullopt);
  }

  [[nodiscard]] std::unique_ptr<ModelHead> make_head(const nn::Scope& root,
                                                     const ModelConfig& config,
                                                     std::optional<Head> head) const override {
    if (!head) return std::make_unique<RobertaLmHead>(root / "lm_head", config);
    const int64_t labels = count_labels(config);
    const nn::Scope classifier = root / "classifier";
    switch (*head) {
      case Head::kPretraining:
        refuse_next_sentence_head(config);
      case Head::kSequenceClassification:
        return first_token_classifier(classifier, config, find_activation("tanh"));
      case Head::kMultipleChoice:  // unlike BERT's, it does not read classifier_dropout
        return std::make_unique<PooledClassifier>(classifier, config, 1,
                                                  config.hidden_dropout_prob);
      case Head::kTokenClassification:
        return std::make_unique<TokenClassifier>(classifier, config, labels, head_dropout(config));
      case Head::kQuestionAnswering:
        return std::make_unique<TokenClassifier>(root / "qa_outputs", config, labels, 0.0);
      case Head::kEmbedding:  // the bare model
        break;
    }
    FT_CHECK(false, "a head without a class");
  }
};

// Conneau et al. 2020: RoBERTa, but transformers registers the head before the encoder.
class XlmRoberta final : public Roberta {
 public:
  [[nodiscard]] std::string model_type() const override { return "xlm-roberta"; }
  [[nodiscard]] std::string class_prefix() const override { return "XLMRoberta"; }
  void set_defaults(ModelConfig& config) const override { config.vocab_size = 30522; }
  [[nodiscard]] bool head_comes_first() const override { return true; }
};

// Martin et al. 2020: RoBERTa, trained on French text; the head before the encoder, too.
class Camembert final : public Roberta {
 public:
  [[nodiscard]] std::string model_type() const override { return "camembert"; }
  [[nodiscard]] std::string class_prefix() const override { return "Camembert"; }
  void set_defaults(ModelConfig& config) const override { config.vocab_size = 30522; }
  [[nodiscard]] bool head_comes_first() const override { return true; }
};

}  // namespace

const Architecture& roberta_architecture() {
  static const Roberta kRoberta;
  return kRoberta;
}

const Architecture& camembert_architecture() {
  static const Camembert kCamembert;
  return kCamembert;
}

const Architecture& xlm_roberta_architecture() {
  static const XlmRoberta kXlmRoberta;
  return kXlmRoberta;
}

}  // namespace finetune
