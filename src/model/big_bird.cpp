// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>

#include "finetune/base/error.h"
#include "model/activation.h"
#include "model/architecture.h"

namespace finetune {
namespace {

// A feed-forward layer and a linear layer. Answers are not searched in the question, which ends at
// the first separator: its logits, except those of the first token, are lowered by 1e6.
class BigBirdAnswerHead final : public ModelHead {
 public:
  BigBirdAnswerHead(const nn::Scope& scope, const ModelConfig& config)
      : dropout_(config.hidden_dropout_prob),
        activation_(find_activation(config.hidden_act)),
        intermediate_(scope / "intermediate" / "dense", config.hidden_size,
                      config.intermediate_size),
        output_(scope / "output" / "dense", config.intermediate_size, config.hidden_size),
        norm_(scope / "output" / "LayerNorm", config.hidden_size, config.layer_norm_eps),
        qa_outputs_(scope / "qa_outputs", config.hidden_size, count_labels(config)) {
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

  nn::Value operator()(const HeadInput& in, nn::Pass& p) const override {
    const nn::Value x = nn::dropout(in.hidden, {dropout_, 0, DropoutSite::kAnswerInput}, p);
    const nn::Value h = output_(nn::activate(intermediate_(x, p), activation_, p), p);
    const nn::Value dropped = nn::dropout(h, {dropout_, 0, DropoutSite::kAnswerOutput}, p);
    const nn::Value logits = qa_outputs_(norm_(nn::add({in.hidden, dropped}, p), p), p);
    const Tensor is_question = question(in.input.input_ids);  // [B, T]
    const Tensor is_first = at::arange(is_question.size(1), in.input.input_ids.options()).eq(0);
    const Tensor lowered =
        is_question.logical_and(is_first.logical_not()).to(logits.tensor.scalar_type());
    return nn::add({logits, {.tensor = lowered.unsqueeze(2) * -1e6}}, p);
  }

 private:
  // Returns [B, T] bool, true up to the first separator. Without a separator it is true only for
  // the first token.
  [[nodiscard]] Tensor question(const Tensor& input_ids) const {
    const Tensor end = at::argmax(input_ids.eq(separator_).to(at::kInt), 1, true);  // [B, 1]
    return at::arange(input_ids.size(1), input_ids.options()).unsqueeze(0).le(end);
  }

  double dropout_;
  int64_t separator_ = 0;
  Activation activation_;
  nn::Linear intermediate_, output_;
  nn::LayerNorm norm_;
  nn::Linear qa_outputs_;
};

// Zaheer et al. 2020
class BigBird final : public Architecture {
 public:
  [[nodiscard]] std::string model_type() const override { return "big_bird"; }
  [[nodiscard]] std::string class_prefix() const override { return "BigBird"; }
  [[nodiscard]] bool has_block_sparse_attention() const override { return true; }
  [[nodiscard]] std::string backbone_name() const override { return "bert"; }
  [[nodiscard]] std::string lm_head_name() const override { return "cls.predictions"; }

  void set_defaults(ModelConfig& config) const override {
    config.vocab_size = 50358;
    config.hidden_act = "gelu_new";
    config.max_position_embeddings = 4096;
    config.pad_token_id = 0;
    config.bos_token_id = 1;
    config.sep_token_id = 66;
    config.attention_type = "block_sparse";
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(Architecture::fields(c),
                       {{"sep_token_id", &c.sep_token_id, 0, kMostTokens},
                        {"attention_type", &c.attention_type},
                        {"use_bias", &c.use_bias},
                        {"rescale_embeddings", &c.rescale_embeddings},
                        {"block_size", &c.block_size, 1, kLongestSequence},
                        {"num_random_blocks", &c.num_random_blocks, 0, kLongestSequence},
                        {"random_blocks_seed", &c.random_blocks_seed, 0, double{1LL << 53}, true},
                        {"bigbird_compat", &c.bigbird_compat, 0, 0, true}});
  }

  // The pooler has the parameters of a linear layer: "bert.pooler.weight". As in transformers, it
  // exists even if no head uses it.
  [[nodiscard]] std::unique_ptr<Backbone> make_backbone(const nn::Scope& scope,
                                                        const ModelConfig& config,
                                                        std::optional<Head> head) const override {
    const bool pools = head != Head::kQuestionAnswering;
    return EncoderModel::make<BigBirdEmbeddings>(
        scope, config, pools ? std::optional(scope / "pooler") : std::nullopt);
  }

  [[nodiscard]] std::unique_ptr<ModelHead> make_head(const nn::Scope& root,
                                                     const ModelConfig& config,
                                                     std::optional<Head> head) const override {
    if (!head) return std::make_unique<BertLmHead>(root / "cls", config);
    const nn::Scope classifier = root / "classifier";
    switch (*head) {
      case Head::kPretraining:
        return std::make_unique<PretrainingHead>(root / "cls", config);
      case Head::kSequenceClassification:
        return first_token_classifier(classifier, config, find_activation(config.hidden_act));
      case Head::kMultipleChoice:  // unlike BERT's, it does not read classifier_dropout
        return std::make_unique<PooledClassifier>(classifier, config, 1,
                                                  config.hidden_dropout_prob);
      case Head::kTokenClassification:
        return std::make_unique<TokenClassifier>(classifier, config, count_labels(config),
                                                 head_dropout(config));
      case Head::kQuestionAnswering:
        return std::make_unique<BigBirdAnswerHead>(root / "qa_classifier", config);
      case Head::kEmbedding:  // the bare model
      case Head::kDecision:
        break;
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
