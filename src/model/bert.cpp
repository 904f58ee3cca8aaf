// SPDX-License-Identifier: MIT
#include "model/bert.h"

#include <ATen/ops/tanh.h>

#include <string>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "model/activation.h"
#include "model/architecture.h"

namespace finetune {

std::optional<BlockSparseOptions> block_sparse_options(const ModelConfig& config) {
  if (config.attention_type != "block_sparse") return std::nullopt;
  return BlockSparseOptions{.block_size = config.block_size,
                            .random_blocks = config.num_random_blocks,
                            .seed = static_cast<uint64_t>(config.random_blocks_seed.value_or(0)),
                            .like_transformers = config.bigbird_compat == "huggingface"};
}

nn::PostNormOptions post_norm_options(const ModelConfig& config, int64_t layer,
                                      bool drops_attention_output) {
  return {.size = config.hidden_size,
          .intermediate = config.intermediate_size,
          .activation = config.hidden_act == "gelu" ? nullptr : find_activation(config.hidden_act),
          .epsilon = config.layer_norm_eps,
          .dropout = config.hidden_dropout_prob,
          .attention_output_dropout = drops_attention_output ? config.hidden_dropout_prob : 0.0,
          .layer = layer};
}

BertLayerScopes bert_layer_scopes(const nn::Scope& layer) {
  const nn::Scope self = layer / "attention" / "self";
  return {self / "query", self / "key", self / "value", nn::bert_scopes(layer)};
}

BertLayer::BertLayer(const nn::Scope& scope, const ModelConfig& config, int64_t layer,
                     const BertOptions& options)
    : BertLayer(options.layer(scope), config, layer, options) {}

BertLayer::BertLayer(const BertLayerScopes& scopes, const ModelConfig& config, int64_t layer,
                     const BertOptions& options)
    : attention_{.heads = config.num_attention_heads,
                 .layer = layer,
                 .dropout = config.attention_probs_dropout_prob,
                 .block_sparse = block_sparse_options(config)},
      rotates_(options.rotates),
      query_(scopes.query, config.hidden_size, config.hidden_size, config.use_bias),
      key_(scopes.key, config.hidden_size, config.hidden_size, config.use_bias),
      value_(scopes.value, config.hidden_size, config.hidden_size, config.use_bias),
      post_norm_(scopes.post_norm,
                 post_norm_options(config, layer, options.drops_attention_output)) {}

nn::Projections BertLayer::rotated(nn::Projections all, nn::Pass& p) const {
  const int64_t size = query_.weight().size(0) / attention_.heads;
  return nn::rope_of_neighbours(std::move(all), size, p.options().rotations.front(), p);
}

BertEncoder::BertEncoder(const nn::Scope& scope, const ModelConfig& config,
                         const BertOptions& options)
    : block_sparse_(block_sparse_options(config)) {
  if (options.rotates) {
    const int64_t size = config.hidden_size / config.num_attention_heads;
    angles_ = scope.parameter("embed_positions.weight", {config.max_position_embeddings, size},
                              ParameterRole::kEmbedding);
    rotated_ = config;
  }
  layers_ = make_layers<BertLayer>(scope / "layer", config, options);
}

std::vector<nn::Rotation> BertEncoder::rotations(const ModelInput& input,
                                                 const TokenLayout* layout) const {
  if (!rotated_) return {};
  const int64_t size = rotated_->hidden_size / rotated_->num_attention_heads;
  return rope_rotations(*rotated_, input, layout, size);
}

void BertEncoder::announce_attention(int64_t tokens) {
  if (!block_sparse_) return;
  const bool is_full = tokens <= block_sparse_->longest_full();
  bool& reported = is_full ? reported_full_ : reported_sparse_;
  if (std::exchange(reported, true)) return;
  log::info(is_full ? "big_bird: full attention for batches of at most " +
                          std::to_string(block_sparse_->longest_full()) + " tokens"
                    : "big_bird: block-sparse attention, blocks of " +
                          std::to_string(block_sparse_->block_size) + " tokens, " +
                          std::to_string(block_sparse_->random_blocks) + " of them random");
}

nn::Value BertEncoder::operator()(nn::Value x, nn::Pass& p) {
  if (!x.tensor.is_meta()) announce_attention(p.layout() ? p.layout()->longest : x.tensor.size(1));
  return nn::sequence(layers_, nn::to_precision(std::move(x), p), p);
}

Pooler::Pooler(const nn::Scope& scope, const ModelConfig& config)
    : dense_(scope, config.hidden_size, config.hidden_size) {}

nn::Value Pooler::operator()(const nn::Value& hidden, nn::Pass& p) const {
  return nn::activate(
      dense_(nn::first_token(hidden, p), p), [](const Tensor& x) { return at::tanh(x); }, p);
}

namespace {

// Devlin et al. 2019
class Bert : public Architecture {
 public:
  [[nodiscard]] std::string model_type() const override { return "bert"; }
  [[nodiscard]] std::string class_prefix() const override { return "Bert"; }
  [[nodiscard]] std::string backbone_name() const override { return "bert"; }
  [[nodiscard]] std::string lm_head_name() const override { return "cls.predictions"; }

  void set_defaults(ModelConfig& config) const override {
    config.vocab_size = 30522;
    config.pad_token_id = 0;
    config.bos_token_id.reset();
    config.eos_token_id.reset();
  }

  [[nodiscard]] std::unique_ptr<Backbone> make_backbone(const nn::Scope& scope,
                                                        const ModelConfig& config,
                                                        std::optional<Head> head) const override {
    const bool pools = head == Head::kSequenceClassification || head == Head::kMultipleChoice ||
                       head == Head::kPretraining || head == Head::kEmbedding;
    return EncoderModel::make<BertEmbeddings>(
        scope, config, pools ? std::optional(scope / "pooler" / "dense") : std::nullopt,
        BertOptions(), tables(config));
  }

  [[nodiscard]] std::unique_ptr<ModelHead> make_head(const nn::Scope& root,
                                                     const ModelConfig& config,
                                                     std::optional<Head> head) const override {
    if (!head) return std::make_unique<BertLmHead>(root / "cls", config);
    const double dropout = head_dropout(config);
    const int64_t labels = count_labels(config);
    const nn::Scope classifier = root / "classifier";
    switch (*head) {
      case Head::kPretraining:
        return std::make_unique<PretrainingHead>(root / "cls", config);
      case Head::kSequenceClassification:
        return std::make_unique<PooledClassifier>(classifier, config, labels, dropout);
      case Head::kMultipleChoice:
        return std::make_unique<PooledClassifier>(classifier, config, 1, dropout);
      case Head::kTokenClassification:
        return std::make_unique<TokenClassifier>(classifier, config, labels, dropout);
      case Head::kQuestionAnswering:
        return std::make_unique<TokenClassifier>(root / "qa_outputs", config, labels, 0.0);
      case Head::kEmbedding:  // the bare model
      case Head::kDecision:
        break;
    }
    FT_CHECK(false, "a head without a class");
  }

 protected:
  [[nodiscard]] virtual EmbeddingTables tables(const ModelConfig& /*config*/) const { return {}; }
};

// Sun et al. 2020, "ERNIE 2.0": BERT, and an embedding of the task, of which transformers uses the
// first row.
class Ernie final : public Bert {
 public:
  [[nodiscard]] std::string model_type() const override { return "ernie"; }
  [[nodiscard]] std::string class_prefix() const override { return "Ernie"; }
  [[nodiscard]] std::string backbone_name() const override { return "ernie"; }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(Bert::fields(c),
                       {{"task_type_vocab_size", &c.encoder.task_type_vocab_size, 1, 65536},
                        {"use_task_id", &c.encoder.use_task_id}});
  }

 protected:
  [[nodiscard]] EmbeddingTables tables(const ModelConfig& config) const override {
    return {.tasks = config.encoder.use_task_id ? config.encoder.task_type_vocab_size : 0};
  }
};

}  // namespace

const Architecture& bert_architecture() {
  static const Bert kBert;
  return kBert;
}

const Architecture& ernie_architecture() {
  static const Ernie kErnie;
  return kErnie;
}

}  // namespace finetune
