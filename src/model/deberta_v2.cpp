// SPDX-License-Identifier: MIT
#include <cmath>

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/nn/disentangled_attention.h"
#include "model/activation_names.h"
#include "model/architecture.h"

namespace finetune {
namespace {

constexpr int64_t kMostDistances = 1 << 15;  // dropout numbers the table's rows with 16 bits

bool has_term(const ModelConfig& config, const char* term) {
  const std::vector<std::string>& all = config.encoder.pos_att_type;
  return config.encoder.relative_attention && std::find(all.begin(), all.end(), term) != all.end();
}

nn::DistanceOptions distance_options(const ModelConfig& config) {
  const int64_t given = config.encoder.max_relative_positions;
  const int64_t longest = given < 1 ? config.max_position_embeddings : given;
  const int64_t buckets = config.encoder.position_buckets.value_or(-1);
  return {.span = buckets > 0 ? buckets : longest, .has_buckets = buckets > 0, .longest = longest};
}

nn::DistanceTerms distance_terms(const ModelConfig& config) {
  return {.has_keys = has_term(config, "c2p"),
          .has_queries = has_term(config, "p2c"),
          .is_shared = config.encoder.share_att_key.value_or(false),
          .dropout = config.hidden_dropout_prob};
}

nn::DisentangledOptions attention_options(const ModelConfig& config, int64_t layer) {
  // The scale is 1 / sqrt(D n) for n terms, even without a table of relative positions.
  const auto terms = static_cast<double>(1 + config.encoder.pos_att_type.size());
  const double size =
      static_cast<double>(config.hidden_size) / static_cast<double>(config.num_attention_heads);
  return {.heads = config.num_attention_heads,
          .layer = layer,
          .dropout = config.attention_probs_dropout_prob,
          .scale = 1.0 / std::sqrt(size * terms)};
}

// BERT's layer with relative-position terms in the attention scores.
class DebertaLayer {
 public:
  DebertaLayer(const nn::Scope& scope, const ModelConfig& config, int64_t layer)
      : attention_(scope / "attention" / "self", config.hidden_size,
                   attention_options(config, layer), distance_terms(config)),
        post_norm_(nn::bert_scopes(scope), post_norm_options(config, layer)) {}

  nn::Value operator()(const nn::Value& x, const nn::DistanceRows& table, nn::Pass& p) const {
    return post_norm_(attention_(x, table, p), x, p);
  }

 private:
  nn::DisentangledAttention attention_;
  nn::PostNorm post_norm_;
};

class DebertaModel final : public Backbone {
 public:
  DebertaModel(const nn::Scope& scope, const ModelConfig& config)
      // Padding is zeroed, as transformers multiplies embeddings by the mask. This matters because
      // queries at padding, whose scores are all equal, average the values of all tokens.
      : embeddings_(scope / "embeddings", config,
                    {.types = config.type_vocab_size > 0,
                     .positions = config.encoder.position_biased_input,
                     .positions_come_first = true,
                     .zeroes_padding = true}),
        layers_(make_layers<DebertaLayer>(scope / "encoder" / "layer", config)),
        table_(make_table(scope / "encoder", config)) {}

  nn::Value operator()(const ModelInput& input, nn::Pass& p) override {
    const nn::DistanceRows table = table_(
        p.layout() ? p.layout()->longest : input.input_ids.size(1), input.input_ids.device(), p);
    return nn::sequence(layers_, nn::to_precision(embeddings_(input, p), p), p, table);
  }
  [[nodiscard]] const Weight& word_embedding() const override {
    return embeddings_.word_embedding();
  }
  [[nodiscard]] std::optional<int64_t> last_layer() const override {
    return std::ssize(layers_) - 1;
  }

 private:
  static nn::DistanceTable make_table(const nn::Scope& scope, const ModelConfig& config) {
    const EncoderConfig& own = config.encoder;
    const bool has_norm = own.norm_rel_ebd.value_or("none") != "none";
    return {scope, config.hidden_size,
            own.relative_attention ? std::optional(distance_options(config)) : std::nullopt,
            has_norm ? std::optional(config.layer_norm_eps) : std::nullopt};
  }

  BertEmbeddings embeddings_;
  std::vector<DebertaLayer> layers_;
  nn::DistanceTable table_;
};

// "lm_predictions.lm_head": the head of models with legacy = false; always tied. transformers calls
// its dense layer the output layer.
std::unique_ptr<ModelHead> lm_head(const nn::Scope& scope, ModelConfig config) {
  config.tie_word_embeddings = true;
  return std::make_unique<DenseLmHead>(
      scope, DenseLmHead::Names{(scope / "dense").of_output(), scope / "LayerNorm"}, config,
      config.hidden_act);
}

// "pooler.dense" and "classifier"
std::unique_ptr<ModelHead> context_classifier(const nn::Scope& root, const ModelConfig& config,
                                              int64_t outputs) {
  const EncoderConfig& own = config.encoder;
  return std::make_unique<DenseClassifier>(
      HeadTransform({root / "pooler" / "dense", config.hidden_size, config.hidden_size},
                    find_activation(own.pooler_hidden_act)),
      root / "classifier",
      DenseClassifierOptions{.outputs = outputs,
                             .input_dropout = own.pooler_dropout,
                             .dropout = own.cls_dropout.value_or(config.hidden_dropout_prob)});
}

// He et al. 2021a, "DeBERTa", and 2021b, "DeBERTaV3"
class DebertaV2 final : public Architecture {
 public:
  [[nodiscard]] std::string model_type() const override { return "deberta-v2"; }
  [[nodiscard]] std::string class_prefix() const override { return "DebertaV2"; }
  [[nodiscard]] std::string backbone_name() const override { return "deberta"; }
  [[nodiscard]] std::string lm_head_name() const override { return "cls.predictions"; }
  [[nodiscard]] bool has_next_sentence_head() const override { return false; }
  [[nodiscard]] bool has_decoder_fields() const override { return false; }

  void set_defaults(ModelConfig& config) const override {
    config.vocab_size = 128100;
    config.hidden_size = 1536;
    config.num_hidden_layers = 24;
    config.num_attention_heads = 24;
    config.intermediate_size = 6144;
    config.type_vocab_size = 0;
    config.layer_norm_eps = 1e-7;
    config.pad_token_id = 0;
    config.bos_token_id.reset();
    config.eos_token_id.reset();
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    EncoderConfig& own = c.encoder;
    return with_fields(
        without_fields(Architecture::fields(c), {"type_vocab_size", "classifier_dropout"}),
        {{"type_vocab_size", &c.type_vocab_size, 0, 1024},
         {"relative_attention", &own.relative_attention},
         {"max_relative_positions", &own.max_relative_positions, -1, kMostDistances},
         {"position_biased_input", &own.position_biased_input},
         {"pos_att_type", &own.pos_att_type},
         {"pooler_dropout", &own.pooler_dropout, 0.0, 0.99},
         {"pooler_hidden_act", &own.pooler_hidden_act},
         {"pooler_hidden_size", &own.pooler_hidden_size, 1, 65536},
         {"legacy", &own.legacy},
         optional_field("position_buckets", &own.position_buckets, -1, kMostDistances),
         optional_field("norm_rel_ebd", &own.norm_rel_ebd),
         optional_field("share_att_key", &own.share_att_key),
         optional_field("embedding_size", &own.embedding_size, 1, 65536),
         optional_field("attention_head_size", &own.attention_head_size, 1, 65536),
         optional_field("conv_kernel_size", &own.conv_kernel_size, 0, 65536),
         optional_field("cls_dropout", &own.cls_dropout, 0.0, 0.99)});
  }

  void complete(ModelConfig& config, const Refuse& refuse) const override {
    Architecture::complete(config, refuse);
    EncoderConfig& own = config.encoder;
    if (!own.pooler_hidden_size) own.pooler_hidden_size = config.hidden_size;
    const int64_t size = config.hidden_size;
    check_equal("pooler_hidden_size", own.pooler_hidden_size, "hidden_size", size, refuse);
    check_equal("embedding_size", own.embedding_size, "hidden_size", size, refuse);
    check_equal("attention_head_size", own.attention_head_size,
                "hidden_size / num_attention_heads =", size / config.num_attention_heads, refuse);
    if (own.conv_kernel_size.value_or(0) > 0) {
      refuse(
          format_text("conv_kernel_size {} asks for a convolution after the first layer "
                      "(deberta-v2-xlarge), which is not available; deberta-v3 has none",
                      *own.conv_kernel_size));
    }
    check_known("pooler_hidden_act", own.pooler_hidden_act, activation_names(), refuse);
    // Files of version 3 have "p2c|c2p"; transformers writes a list.
    own.pos_att_type = split_items(own.pos_att_type, '|');
    for (const std::string& term : own.pos_att_type) {
      if (term == "c2p" || term == "p2c") continue;
      refuse("pos_att_type has '" + term + "', but only 'c2p' and 'p2c' are available");
    }
    check_known("norm_rel_ebd", own.norm_rel_ebd.value_or("none"), {"none", "layer_norm"}, refuse);
    if (own.relative_attention) check_distances(config, refuse);
  }

  [[nodiscard]] std::unique_ptr<Backbone> make_backbone(
      const nn::Scope& scope, const ModelConfig& config,
      std::optional<Head> /*head*/) const override {
    return std::make_unique<DebertaModel>(scope, config);
  }

  [[nodiscard]] std::unique_ptr<ModelHead> make_head(const nn::Scope& root,
                                                     const ModelConfig& config,
                                                     std::optional<Head> head) const override {
    if (!head && config.encoder.legacy) return std::make_unique<BertLmHead>(root / "cls", config);
    if (!head) return lm_head(root / "lm_predictions" / "lm_head", config);
    const int64_t labels = count_labels(config);
    switch (*head) {
      case Head::kPretraining:
        refuse_next_sentence_head(config);
      case Head::kSequenceClassification:
      case Head::kMultipleChoice:
        return context_classifier(root, config, count_outputs(config, *head));
      case Head::kTokenClassification:
        return std::make_unique<TokenClassifier>(root / "classifier", config, labels,
                                                 config.hidden_dropout_prob);
      case Head::kQuestionAnswering:
        return std::make_unique<TokenClassifier>(root / "qa_outputs", config, labels, 0.0);
      case Head::kEmbedding:  // the bare model
      case Head::kDecision:
        break;
    }
    FT_CHECK(false, "a head without a class");
  }

  [[nodiscard]] TiedNames tied_names(const ModelConfig& config) const override {
    if (!config.encoder.legacy) return {};
    return Architecture::tied_names(config);
  }

 private:
  static void check_distances(const ModelConfig& config, const Refuse& refuse) {
    const auto [buckets, has_buckets, longest] = distance_options(config);
    if (!has_buckets) {
      if (longest <= kMostDistances) return;
      refuse(
          format_text("max_relative_positions (max_position_embeddings where it is -1) is {}, "
                      "but without position_buckets at most {} are available",
                      longest, kMostDistances));
    }
    if (buckets < 2) refuse(format_text("position_buckets {} is below 2", buckets));
    const int64_t middle = buckets / 2;
    if (longest - 1 <= middle && config.max_position_embeddings - 1 > middle) {
      refuse(
          format_text("max_relative_positions {} leaves nothing for the {} position_buckets, of "
                      "which distances from {} on share some",
                      longest, buckets, middle));
    }
  }
};

}  // namespace

const Architecture& deberta_v2_architecture() {
  static const DebertaV2 kDebertaV2;
  return kDebertaV2;
}

}  // namespace finetune
