// SPDX-License-Identifier: MIT
#include "finetune/base/error.h"
#include "model/decoder.h"

namespace finetune {
namespace {

// Llama's layers, each token of which attends to all others, and their last norm.
class EuroBertModel final : public Backbone {
 public:
  EuroBertModel(const nn::Scope& scope, const ModelConfig& config, const DecoderOptions& options)
      : layers_(scope, config, options), norm_(scope / "norm", options.hidden, options.epsilon) {}

  nn::Value operator()(const ModelInput& input, nn::Pass& p) override {
    return norm_(layers_(input, p), p);
  }
  [[nodiscard]] std::vector<nn::Rotation> rotations(const ModelInput& input,
                                                    const TokenLayout* layout) const override {
    return layers_.rotations(input, layout);
  }
  [[nodiscard]] const Weight& word_embedding() const override { return layers_.word_embedding(); }
  [[nodiscard]] std::optional<int64_t> last_layer() const override { return layers_.last_layer(); }

 private:
  Decoder layers_;
  nn::RmsNorm norm_;
};

// "lm_head" on the hidden states.
class WordHead final : public LmHead {
 public:
  WordHead(const nn::Scope& scope, const ModelConfig& config) {
    if (!config.tie_word_embeddings) {
      weight_ = scope.parameter("weight", {config.vocab_size, config.hidden_size});
    }
    if (config.decoder.mlp_bias) bias_ = scope.parameter("bias", {config.vocab_size});
  }
  nn::Value transform(const HeadInput& in, nn::Pass& /*p*/) const override { return in.hidden; }
  [[nodiscard]] LmDecoder decoder(const Backbone& backbone) const override {
    if (weight_.defined()) return {weight_, bias_, false};
    return {backbone.word_embedding(), bias_, true};
  }

 private:
  Weight weight_, bias_;
};

// The mean of all tokens' logits.
class LateClassifier final : public ModelHead {
 public:
  explicit LateClassifier(DenseClassifier of_tokens) : of_tokens_(std::move(of_tokens)) {}
  nn::Value operator()(const HeadInput& in, nn::Pass& p) const override {
    return nn::mean_of_tokens(of_tokens_(in, p), in.input.attention_mask, p);
  }

 private:
  DenseClassifier of_tokens_;
};

// Boizard et al. 2025
class EuroBert final : public DecoderFamily {
 public:
  [[nodiscard]] std::string model_type() const override { return "eurobert"; }
  [[nodiscard]] std::string class_prefix() const override { return "EuroBert"; }
  [[nodiscard]] bool is_causal() const override { return false; }
  [[nodiscard]] bool has_decoder_fields() const override { return false; }

  void set_defaults(ModelConfig& config) const override {
    DecoderFamily::set_defaults(config);
    config.vocab_size = 128256;
    config.hidden_size = 768;
    config.intermediate_size = 3072;
    config.num_hidden_layers = 12;
    config.num_attention_heads = 12;
    config.max_position_embeddings = 8192;
    config.bos_token_id = 128000;
    config.decoder.eos_token_ids = {128001};
    config.decoder.pad_token_id = 128001;
    config.decoder.rms_norm_eps = 1e-5;
    config.encoder.classifier_pooling = "late";
    config.other_fields = R"({"pretraining_tp": 1, "use_cache": true})";
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(DecoderFamily::fields(c),
                       {{"hidden_act", &c.hidden_act},
                        {"head_dim", &c.decoder.head_dim, 1, 4096},
                        {"attention_bias", &c.decoder.attention_bias},
                        {"mlp_bias", &c.decoder.mlp_bias},
                        {"mask_token_id", &c.encoder.mask_token_id, 0, kMostTokens},
                        {"classifier_pooling", &c.encoder.classifier_pooling}});
  }

  void complete(ModelConfig& config, const Refuse& refuse) const override {
    DecoderFamily::complete(config, refuse);
    check_known("classifier_pooling", config.encoder.classifier_pooling, {"late", "bos", "mean"},
                refuse);
  }

  [[nodiscard]] std::unique_ptr<Backbone> make_backbone(
      const nn::Scope& scope, const ModelConfig& config,
      std::optional<Head> /*head*/) const override {
    DecoderOptions options = decoder_options(config);
    options.causal = false;
    return std::make_unique<EuroBertModel>(scope, config, options);
  }

  [[nodiscard]] std::unique_ptr<ModelHead> make_head(const nn::Scope& root,
                                                     const ModelConfig& config,
                                                     std::optional<Head> head) const override {
    if (!head) return std::make_unique<WordHead>(root / "lm_head", config);
    const int64_t labels = count_labels(config);
    if (head == Head::kTokenClassification) {
      return std::make_unique<TokenClassifier>(root / "classifier", config, labels, 0.0);
    }
    if (head != Head::kSequenceClassification) refuse_head(config);
    const std::string& pooling = config.encoder.classifier_pooling;
    const TokensRead tokens = pooling == "late"  ? TokensRead::kAll
                              : pooling == "bos" ? TokensRead::kFirst
                                                 : TokensRead::kMean;
    DenseClassifier classifier(
        HeadTransform({root / "dense", config.hidden_size, config.hidden_size},
                      find_activation("gelu")),
        root / "classifier", DenseClassifierOptions{.outputs = labels, .tokens = tokens});
    if (tokens == TokensRead::kAll) return std::make_unique<LateClassifier>(std::move(classifier));
    return std::make_unique<DenseClassifier>(std::move(classifier));
  }

  [[nodiscard]] std::optional<DecoderNorm> last_norm(const nn::Scope& /*backbone*/,
                                                     const ModelConfig& /*config*/) const override {
    return std::nullopt;  // of the backbone
  }
};

}  // namespace

const Architecture& eurobert_architecture() {
  static const EuroBert kEuroBert;
  return kEuroBert;
}

}  // namespace finetune
