// SPDX-License-Identifier: MIT
#include "finetune/base/error.h"
#include "model/activation.h"
#include "model/architecture.h"
#include "model/embeddings.h"

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
      case Head::kDecision:
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

// h = x + Dropout(O Attention(LN(x))), y = h + W2 f(W1 LN(h)).
class PreNormLayer {
 public:
  PreNormLayer(const nn::Scope& scope, const ModelConfig& config, int64_t layer)
      : attention_{.heads = config.num_attention_heads,
                   .layer = layer,
                   .dropout = config.attention_probs_dropout_prob},
        dropout_(config.hidden_dropout_prob),
        query_(scope / "attention" / "self" / "query", config.hidden_size, config.hidden_size),
        key_(scope / "attention" / "self" / "key", config.hidden_size, config.hidden_size),
        value_(scope / "attention" / "self" / "value", config.hidden_size, config.hidden_size),
        output_(scope / "attention" / "output" / "dense", config.hidden_size, config.hidden_size),
        attention_norm_(scope / "attention" / "self_attn_layer_norm", config.hidden_size,
                        config.layer_norm_eps),
        up_(scope / "intermediate" / "dense", config.hidden_size, config.intermediate_size,
            config.hidden_act == "gelu" ? nullptr : find_activation(config.hidden_act)),
        down_(scope / "output" / "dense", config.intermediate_size, config.hidden_size),
        norm_(scope / "LayerNorm", config.hidden_size, config.layer_norm_eps) {}

  nn::Value operator()(const nn::Value& x, nn::Pass& p) const {
    const nn::Value n = nn::to_precision(attention_norm_(x, p), p);
    const nn::Linear::SharedInput shared(n, {&value_, &key_, &query_}, p);
    nn::Value attended =
        output_(nn::attend({.value = value_(n, shared, p),
                            .key = key_(n, shared, p),
                            .query = query_(nn::query_tokens(n, attention_, p), shared, p)},
                           attention_, p),
                p);
    attended = nn::dropout(std::move(attended),
                           {dropout_, attention_.layer, DropoutSite::kAttentionOutput}, p);
    const nn::Value h = nn::add({nn::read_tokens(x, attention_.layer, p), std::move(attended)}, p);
    return nn::add({h, down_(up_(nn::to_precision(norm_(h, p), p), p), p)}, p);
  }

 private:
  nn::AttentionOptions attention_;
  double dropout_;
  nn::Linear query_, key_, value_, output_;
  nn::LayerNorm attention_norm_;
  nn::DenseActivation up_;
  nn::Linear down_;
  nn::LayerNorm norm_;
};

class PreNormModel final : public Backbone {
 public:
  PreNormModel(const nn::Scope& scope, const ModelConfig& config, bool pools)
      : embeddings_(scope / "embeddings", config, /*has_types=*/true, /*has_norm=*/false),
        layers_(make_layers<PreNormLayer>(scope / "encoder" / "layer", config)),
        norm_(scope / "encoder" / "LayerNorm", config.hidden_size, config.layer_norm_eps) {
    if (pools) pooler_.emplace(scope / "pooler" / "dense", config);
  }
  nn::Value operator()(const ModelInput& input, nn::Pass& p) override {
    return norm_(nn::sequence(layers_, embeddings_(input, p), p), p);
  }
  [[nodiscard]] nn::Value pool(const nn::Value& hidden, nn::Pass& p) const override {
    return (*pooler_)(hidden, p);
  }
  [[nodiscard]] const Weight& word_embedding() const override {
    return embeddings_.word_embedding();
  }
  [[nodiscard]] std::optional<int64_t> last_layer() const override {
    return std::ssize(layers_) - 1;
  }

 private:
  RobertaEmbeddings embeddings_;
  std::vector<PreNormLayer> layers_;
  nn::LayerNorm norm_;
  std::optional<Pooler> pooler_;
};

// Goyal et al. 2021: RoBERTa with norms before the sublayers.
class XlmRobertaXl final : public Roberta {
 public:
  [[nodiscard]] std::string model_type() const override { return "xlm-roberta-xl"; }
  [[nodiscard]] std::string class_prefix() const override { return "XLMRobertaXL"; }
  void set_defaults(ModelConfig& config) const override {
    config.vocab_size = 250880;
    config.hidden_size = 2560;
    config.num_hidden_layers = 36;
    config.num_attention_heads = 32;
    config.intermediate_size = 10240;
    config.max_position_embeddings = 514;
    config.type_vocab_size = 1;
    config.layer_norm_eps = 1e-5;
  }
  [[nodiscard]] std::unique_ptr<Backbone> make_backbone(const nn::Scope& scope,
                                                        const ModelConfig& config,
                                                        std::optional<Head> head) const override {
    const bool pools = head == Head::kMultipleChoice || head == Head::kEmbedding;
    return std::make_unique<PreNormModel>(scope, config, pools);
  }
};

}  // namespace

const Architecture& xlm_roberta_xl_architecture() {
  static const XlmRobertaXl kXlmRobertaXl;
  return kXlmRobertaXl;
}

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
