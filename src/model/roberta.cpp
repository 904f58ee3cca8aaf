// SPDX-License-Identifier: MIT
#include "finetune/base/error.h"
#include "model/architecture.h"
#include "model/bert.h"

namespace finetune {
namespace {

// Liu et al. 2019
class Roberta : public Architecture {
 public:
  [[nodiscard]] std::string class_prefix() const override { return "Roberta"; }
  [[nodiscard]] std::string encoder_name() const override { return "roberta"; }
  [[nodiscard]] std::string lm_head_name() const override { return "lm_head"; }
  [[nodiscard]] bool has_next_sentence_head() const override { return false; }
  [[nodiscard]] bool has_padding_row(std::string_view parameter) const override {
    return Architecture::has_padding_row(parameter) ||
           parameter.ends_with("position_embeddings.weight");
  }

  [[nodiscard]] std::shared_ptr<EncoderModelImpl> make_encoder(
      const ModelConfig& config, std::optional<Head> head) const override {
    std::shared_ptr<PoolerImpl> pooler;
    if (head == Head::kMultipleChoice) pooler = std::make_shared<BertPoolerImpl>(config);
    return std::make_shared<EncoderModelImpl>(
        config, std::make_shared<RobertaEmbeddingsImpl>(config), pooler);
  }

  [[nodiscard]] NamedHead make_head(const ModelConfig& config,
                                    std::optional<Head> head) const override {
    if (!head) return {"lm_head", std::make_shared<RobertaLmHeadImpl>(config)};
    const int64_t labels = count_labels(config);
    switch (*head) {
      case Head::kPretraining:
        throw Error(ErrorKind::kConfig,
                    "model_type '" + config.model_type + "' has no head for the next sentence");
      case Head::kSequenceClassification:
        return {"classifier",
                std::make_shared<FirstTokenClassifierImpl>(config, find_activation("tanh"))};
      case Head::kMultipleChoice:  // classifier_dropout is not asked here, unlike in BERT's
        return {"classifier",
                std::make_shared<PooledClassifierImpl>(config, 1, config.hidden_dropout_prob)};
      case Head::kTokenClassification:
        return {"classifier",
                std::make_shared<TokenClassifierImpl>(config, labels, head_dropout(config))};
      case Head::kQuestionAnswering:
        return {"qa_outputs", std::make_shared<TokenClassifierImpl>(config, labels, 0.0)};
    }
    FT_CHECK(false, "a head without a class");
  }
};

// Conneau et al. 2020: RoBERTa, but transformers registers the head before the encoder.
class XlmRoberta final : public Roberta {
 public:
  [[nodiscard]] std::string class_prefix() const override { return "XLMRoberta"; }
  [[nodiscard]] bool head_comes_first() const override { return true; }
};

}  // namespace

const Architecture& roberta_architecture() {
  static const Roberta kRoberta;
  return kRoberta;
}

const Architecture& xlm_roberta_architecture() {
  static const XlmRoberta kXlmRoberta;
  return kXlmRoberta;
}

}  // namespace finetune
