// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tanh.h>

#include "finetune/base/error.h"
#include "model/architecture.h"

namespace finetune {
namespace {

// pooled = tanh(W first token + b), with parameters of its own: "bert.pooler.weight".
class BigBirdPoolerImpl final : public PoolerImpl {
 public:
  explicit BigBirdPoolerImpl(const ModelConfig& config)
      : weight_(register_parameter("weight", at::empty({config.hidden_size, config.hidden_size}))),
        bias_(register_parameter("bias", at::empty({config.hidden_size}))) {}

  Tensor forward(const Tensor& hidden, const ForwardContext& context) override {
    return at::tanh(linear(hidden.select(1, 0), weight_, bias_, context));
  }

 private:
  Tensor weight_, bias_;
};

// A feed-forward layer and a linear one. The question, which ends with the first separator, takes
// no part: its logits are lowered by 1e6, all but those of the first token.
class BigBirdAnswerHeadImpl final : public HeadImpl {
 public:
  explicit BigBirdAnswerHeadImpl(const ModelConfig& config)
      : dropout_(config.hidden_dropout_prob),
        intermediate_(register_module("intermediate", Intermediate(config))),
        output_(register_module(
            "output", AddAndNorm(config, config.intermediate_size, 0, DropoutSite::kAnswerOutput))),
        qa_outputs_(
            register_module("qa_outputs", Linear(config.hidden_size, count_labels(config)))) {
    if (!config.sep_token_id) {
      throw Error(ErrorKind::kConfig,
                  "big_bird's question answering needs sep_token_id in config.json, which tells "
                  "where the question ends");
    }
    if (config.type_vocab_size < 2) {
      throw Error(ErrorKind::kConfig,
                  "big_bird's question answering needs a type_vocab_size of 2 or more");
    }
    separator_ = *config.sep_token_id;
  }

  [[nodiscard]] ModelInput prepare(const ModelInput& input) const override {
    if (input.token_type_ids.defined()) return input;
    ModelInput filled = input;
    filled.token_type_ids = question(input.input_ids).logical_not().to(at::kLong);
    return filled;
  }

  Tensor forward(const HeadInput& in) override {
    const Tensor x = in.context.drop(in.hidden, dropout_, 0, DropoutSite::kAnswerInput);
    const Tensor logits =
        qa_outputs_(output_(intermediate_(x, in.context), in.hidden, in.context), in.context);
    Tensor lowered = question(in.input.input_ids).to(logits.scalar_type());  // [B, T]
    lowered.select(1, 0).zero_();
    return logits - lowered.unsqueeze(2) * 1e6;
  }

 private:
  // [B, T] bool: true up to the first separator. Without one it is the first token alone.
  [[nodiscard]] Tensor question(const Tensor& input_ids) const {
    const Tensor end = at::argmax(input_ids.eq(separator_).to(at::kInt), 1, true);  // [B, 1]
    return at::arange(input_ids.size(1), input_ids.options()).unsqueeze(0).le(end);
  }

  double dropout_;
  int64_t separator_ = 0;
  Intermediate intermediate_;
  AddAndNorm output_;
  Linear qa_outputs_;
};

// Zaheer et al. 2020
class BigBird final : public Architecture {
 public:
  [[nodiscard]] std::string class_prefix() const override { return "BigBird"; }
  [[nodiscard]] std::string encoder_name() const override { return "bert"; }
  [[nodiscard]] std::string lm_head_name() const override { return "cls.predictions"; }

  [[nodiscard]] std::shared_ptr<EncoderModelImpl> make_encoder(
      const ModelConfig& config, std::optional<Head> head) const override {
    // Where no head looks at it, the pooler is there all the same, as in transformers.
    std::shared_ptr<PoolerImpl> pooler;
    if (head != Head::kQuestionAnswering) pooler = std::make_shared<BigBirdPoolerImpl>(config);
    return std::make_shared<EncoderModelImpl>(
        config, std::make_shared<BigBirdEmbeddingsImpl>(config), pooler);
  }

  [[nodiscard]] NamedHead make_head(const ModelConfig& config,
                                    std::optional<Head> head) const override {
    if (!head) return {"cls", std::make_shared<BertLmHeadImpl>(config)};
    switch (*head) {
      case Head::kPretraining:
        return {"cls", std::make_shared<PretrainingHeadImpl>(config)};
      case Head::kSequenceClassification:
        return {"classifier", std::make_shared<FirstTokenClassifierImpl>(
                                  config, find_activation(config.hidden_act))};
      case Head::kMultipleChoice:  // classifier_dropout is not asked here, unlike in BERT's
        return {"classifier",
                std::make_shared<PooledClassifierImpl>(config, 1, config.hidden_dropout_prob)};
      case Head::kTokenClassification:
        return {"classifier", std::make_shared<TokenClassifierImpl>(config, count_labels(config),
                                                                    head_dropout(config))};
      case Head::kQuestionAnswering:
        return {"qa_classifier", std::make_shared<BigBirdAnswerHeadImpl>(config)};
    }
    FT_CHECK(false, "a head without a class");
  }
};

}  // namespace

const Architecture& big_bird_architecture() {
  static const BigBird kBigBird;
  return kBigBird;
}

}  // namespace finetune
