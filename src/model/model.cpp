// SPDX-License-Identifier: MIT
// The models of tasks: a BackboneWithHead behind each interface of model.h.
#include "finetune/model/model.h"

#include "finetune/base/error.h"
#include "model/backbone_with_head.h"

namespace finetune {
namespace {

class BackboneLanguageModel final : public LanguageModel {
 public:
  BackboneLanguageModel(const ModelConfig& config, uint64_t seed, c10::Device device,
                        const ModelOptions& options)
      : body_(config, std::nullopt, seed, device, options) {}

  Tensor logits(const ModelInput& input, const Tensor& positions) override {
    return body_.logits(input, positions);
  }
  Tensor loss_sum(const ModelInput& input, const Tensor& positions, const Tensor& labels,
                  const LmLossOptions& options) override {
    return body_.loss_sum(input, positions, labels, options);
  }
  Tensor token_log_probs(const ModelInput& input, const Tensor& positions,
                         const Tensor& labels) override {
    return body_.token_log_probs(input, positions, labels);
  }
  Scores score(const ModelInput& input, const Tensor& positions, const Tensor& labels,
               const ScoreOptions& options) override {
    return body_.score(input, positions, labels, options);
  }
  [[nodiscard]] const Weights& weights() const override { return body_.weights(); }
  [[nodiscard]] ParameterStore& store() override { return body_.store(); }
  [[nodiscard]] const ParameterStore& store() const override { return body_.store(); }
  [[nodiscard]] const ModelConfig& config() const override { return body_.config(); }
  [[nodiscard]] std::string architecture() const override { return body_.lm_class(); }

 private:
  BackboneWithHead body_;
};

class EncoderPretrainingModel final : public PretrainingModel {
 public:
  EncoderPretrainingModel(const ModelConfig& config, uint64_t seed, c10::Device device,
                          const ModelOptions& options)
      : body_(config, Head::kPretraining, seed, device, options) {}

  Logits logits(const ModelInput& input, const Tensor& positions) override {
    return body_.pretraining_logits(input, positions);
  }
  Terms terms(const ModelInput& input, const Tensor& positions, const Tensor& labels,
              const LmLossOptions& options) override {
    return body_.pretraining_terms(input, positions, labels, options);
  }
  [[nodiscard]] const Weights& weights() const override { return body_.weights(); }
  [[nodiscard]] ParameterStore& store() override { return body_.store(); }
  [[nodiscard]] const ParameterStore& store() const override { return body_.store(); }
  [[nodiscard]] const ModelConfig& config() const override { return body_.config(); }
  [[nodiscard]] std::string architecture() const override {
    return body_.class_name("PreTraining");
  }

 private:
  BackboneWithHead body_;
};

class EncoderHeadModel final : public HeadModel {
 public:
  EncoderHeadModel(Head head, const ModelConfig& config, uint64_t seed, c10::Device device,
                   const ModelOptions& options)
      : head_(head), body_(config, head, seed, device, options) {}

  Tensor logits(const ModelInput& input) override { return body_.logits(input); }
  [[nodiscard]] const Weights& weights() const override { return body_.weights(); }
  [[nodiscard]] ParameterStore& store() override { return body_.store(); }
  [[nodiscard]] const ParameterStore& store() const override { return body_.store(); }
  [[nodiscard]] const ModelConfig& config() const override { return body_.config(); }
  [[nodiscard]] std::string architecture() const override {
    switch (head_) {
      case Head::kPretraining:
        break;
      case Head::kSequenceClassification:
        return body_.class_name("SequenceClassification");
      case Head::kMultipleChoice:
        return body_.class_name("MultipleChoice");
      case Head::kTokenClassification:
        return body_.class_name("TokenClassification");
      case Head::kQuestionAnswering:
        return body_.class_name("QuestionAnswering");
    }
    FT_CHECK(false, "a head without a class");
  }

 private:
  Head head_;
  BackboneWithHead body_;
};

}  // namespace

Weights Model::trained_weights() const {
  Weights trained;
  for (const size_t id : store().trained()) trained.push_back(weights()[id]);
  return trained;
}

std::unique_ptr<LanguageModel> make_language_model(const ModelConfig& config, uint64_t seed,
                                                   c10::Device device,
                                                   const ModelOptions& options) {
  return std::make_unique<BackboneLanguageModel>(config, seed, device, options);
}

std::unique_ptr<PretrainingModel> make_pretraining_model(const ModelConfig& config, uint64_t seed,
                                                         c10::Device device,
                                                         const ModelOptions& options) {
  return std::make_unique<EncoderPretrainingModel>(config, seed, device, options);
}

bool is_causal(const ModelConfig& config) { return architecture_of(config).is_causal(); }

bool has_next_sentence_head(const ModelConfig& config) {
  return architecture_of(config).has_next_sentence_head();
}

std::unique_ptr<HeadModel> make_head_model(Head head, const ModelConfig& config, uint64_t seed,
                                           c10::Device device, const ModelOptions& options) {
  FT_CHECK(head != Head::kPretraining, "a pretraining model has two outputs");
  return std::make_unique<EncoderHeadModel>(head, config_for(head, config), seed, device, options);
}

}  // namespace finetune
