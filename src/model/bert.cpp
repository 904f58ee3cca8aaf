// SPDX-License-Identifier: MIT
#include "model/bert.h"

#include <ATen/ops/tanh.h>

#include "finetune/base/error.h"
#include "model/architecture.h"

namespace finetune {

BertPoolerImpl::BertPoolerImpl(const ModelConfig& config)
    : dense_(register_module("dense", Linear(config.hidden_size, config.hidden_size))) {}

Tensor BertPoolerImpl::forward(const Tensor& hidden, const ForwardContext& context) {
  return at::tanh(dense_(hidden.select(1, 0), context));
}

namespace {

// Devlin et al. 2019
class Bert final : public Architecture {
 public:
  [[nodiscard]] std::string class_prefix() const override { return "Bert"; }
  [[nodiscard]] std::string encoder_name() const override { return "bert"; }
  [[nodiscard]] std::string lm_head_name() const override { return "cls.predictions"; }

  [[nodiscard]] std::shared_ptr<EncoderModelImpl> make_encoder(
      const ModelConfig& config, std::optional<Head> head) const override {
    std::shared_ptr<PoolerImpl> pooler;
    if (head == Head::kSequenceClassification || head == Head::kMultipleChoice ||
        head == Head::kPretraining) {
      pooler = std::make_shared<BertPoolerImpl>(config);
    }
    return std::make_shared<EncoderModelImpl>(config, std::make_shared<BertEmbeddingsImpl>(config),
                                              pooler);
  }

  [[nodiscard]] NamedHead make_head(const ModelConfig& config,
                                    std::optional<Head> head) const override {
    if (!head) return {"cls", std::make_shared<BertLmHeadImpl>(config)};
    const double dropout = head_dropout(config);
    const int64_t labels = count_labels(config);
    switch (*head) {
      case Head::kPretraining:
        return {"cls", std::make_shared<PretrainingHeadImpl>(config)};
      case Head::kSequenceClassification:
        return {"classifier", std::make_shared<PooledClassifierImpl>(config, labels, dropout)};
      case Head::kMultipleChoice:
        return {"classifier", std::make_shared<PooledClassifierImpl>(config, 1, dropout)};
      case Head::kTokenClassification:
        return {"classifier", std::make_shared<TokenClassifierImpl>(config, labels, dropout)};
      case Head::kQuestionAnswering:
        return {"qa_outputs", std::make_shared<TokenClassifierImpl>(config, labels, 0.0)};
    }
    FT_CHECK(false, "a head without a class");
  }
};

}  // namespace

const Architecture& bert_architecture() {
  static const Bert kBert;
  return kBert;
}

}  // namespace finetune
