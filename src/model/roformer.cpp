// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/pow.h>

#include "finetune/base/error.h"
#include "model/activation.h"
#include "model/architecture.h"
#include "model/bert.h"

namespace finetune {
namespace {

// Su et al. 2021: BERT whose heads rotate by neighbours instead of position embeddings. The angles'
// table in its files is that of the formula.
class RoFormer final : public Architecture {
 public:
  [[nodiscard]] std::string model_type() const override { return "roformer"; }
  [[nodiscard]] std::string class_prefix() const override { return "RoFormer"; }
  [[nodiscard]] std::string backbone_name() const override { return "roformer"; }
  [[nodiscard]] std::string lm_head_name() const override { return "cls.predictions"; }
  [[nodiscard]] bool has_next_sentence_head() const override { return false; }

  void set_defaults(ModelConfig& config) const override {
    config.vocab_size = 50000;
    config.max_position_embeddings = 1536;
    config.pad_token_id = 0;
    config.bos_token_id.reset();
    config.eos_token_id.reset();
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(without_fields(Architecture::fields(c), {"classifier_dropout"}),
                       {{"embedding_size", &c.encoder.embedding_size, 1, 65536},
                        {"rotary_value", &c.encoder.rotary_value}});
  }

  void complete(ModelConfig& config, const Refuse& refuse) const override {
    Architecture::complete(config, refuse);
    if (!config.encoder.embedding_size) config.encoder.embedding_size = config.hidden_size;
    if (config.encoder.rotary_value) refuse("rotary_value is true, which is not available");
    if (head_dim(config) % 2 != 0) refuse("heads of an odd size do not rotate");
  }

  [[nodiscard]] std::unique_ptr<Backbone> make_backbone(
      const nn::Scope& scope, const ModelConfig& config,
      std::optional<Head> /*head*/) const override {
    return EncoderModel::make<BertEmbeddings>(
        scope, config, std::nullopt,
        {.embedding_size = *config.encoder.embedding_size, .rotates = true},
        EmbeddingTables{.positions = false});
  }

  [[nodiscard]] std::unique_ptr<ModelHead> make_head(const nn::Scope& root,
                                                     const ModelConfig& config,
                                                     std::optional<Head> head) const override {
    if (!head) return word_head(root / "cls" / "predictions", config);
    const int64_t labels = count_labels(config);
    const nn::Scope classifier = root / "classifier";
    if (*head == Head::kSequenceClassification) {
      return first_token_classifier(classifier, config, find_activation(config.hidden_act));
    }
    if (*head == Head::kTokenClassification) {
      return std::make_unique<TokenClassifier>(classifier, config, labels, head_dropout(config));
    }
    // transformers' class for several choices reads the last token, which may be padding.
    if (*head != Head::kQuestionAnswering) refuse_head(config);
    return std::make_unique<TokenClassifier>(root / "qa_outputs", config, labels, 0.0);
  }

  // sin(p / 10000^(2 i / D)), then the cosines [P, D] (Vaswani et al. 2017).
  [[nodiscard]] std::optional<Tensor> fixed_values(const ModelConfig& config,
                                                   const Weight& weight) const override {
    if (!weight.name().ends_with("embed_positions.weight")) return std::nullopt;
    const auto size = static_cast<double>(head_dim(config));
    const Tensor steps = at::arange(0.0, size, 2.0, at::kDouble) / size;
    const Tensor positions = at::arange(config.max_position_embeddings).to(at::kDouble);
    const Tensor angles = positions.unsqueeze(1) / at::pow(10000.0, steps);
    return at::cat({angles.sin(), angles.cos()}, 1).to(at::kFloat);
  }

 private:
  static int64_t head_dim(const ModelConfig& config) {
    return config.hidden_size / config.num_attention_heads;
  }

  static std::unique_ptr<ModelHead> word_head(const nn::Scope& scope, const ModelConfig& config) {
    const nn::Scope transform = scope / "transform";
    return std::make_unique<DenseLmHead>(
        scope, DenseLmHead::Names{transform / "dense", transform / "LayerNorm"}, config,
        config.hidden_act, config.encoder.embedding_size);
  }
};

}  // namespace

const Architecture& roformer_architecture() {
  static const RoFormer kRoFormer;
  return kRoFormer;
}

}  // namespace finetune
