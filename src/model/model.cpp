// SPDX-License-Identifier: MIT
// The models of tasks: a BackboneWithHead behind each interface of model.h.
#include "finetune/model/model.h"

#include "finetune/base/error.h"
#include "model/backbone_with_head.h"

namespace finetune {
namespace {

// What the models of all tasks share.
template <class Interface>
class OnBackbone : public Interface {
 public:
  OnBackbone(std::optional<Head> head, const ModelConfig& config, uint64_t seed, c10::Device device,
             const ModelOptions& options)
      : body_(config, head, seed, device, options), class_(body_.class_name(head)) {}

  [[nodiscard]] const Weights& weights() const final { return body_.weights(); }
  [[nodiscard]] ParameterStore& store() final { return body_.store(); }
  [[nodiscard]] const ParameterStore& store() const final { return body_.store(); }
  [[nodiscard]] const ModelConfig& config() const final { return body_.config(); }
  [[nodiscard]] std::string architecture() const final { return class_; }

 protected:
  BackboneWithHead body_;

 private:
  std::string class_;
};

class BackboneLanguageModel final : public OnBackbone<LanguageModel> {
 public:
  using OnBackbone::OnBackbone;

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
};

class EncoderPretrainingModel final : public OnBackbone<PretrainingModel> {
 public:
  using OnBackbone::OnBackbone;

  Logits logits(const ModelInput& input, const Tensor& positions) override {
    return body_.pretraining_logits(input, positions);
  }
  Terms terms(const ModelInput& input, const Tensor& positions, const Tensor& labels,
              const LmLossOptions& options) override {
    return body_.pretraining_terms(input, positions, labels, options);
  }
};

class EncoderHeadModel final : public OnBackbone<HeadModel> {
 public:
  using OnBackbone::OnBackbone;

  Tensor logits(const ModelInput& input) override { return body_.logits(input); }
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
  return std::make_unique<BackboneLanguageModel>(std::nullopt, config, seed, device, options);
}

std::unique_ptr<PretrainingModel> make_pretraining_model(const ModelConfig& config, uint64_t seed,
                                                         c10::Device device,
                                                         const ModelOptions& options) {
  return std::make_unique<EncoderPretrainingModel>(Head::kPretraining, config, seed, device,
                                                   options);
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
