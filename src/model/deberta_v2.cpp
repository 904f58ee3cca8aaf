// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

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

int64_t max_relative_positions(const ModelConfig& config) {
  const int64_t given = config.encoder.max_relative_positions;
  return given < 1 ? config.max_position_embeddings : given;
}

bool has_buckets(const ModelConfig& config) {
  return config.encoder.position_buckets.value_or(-1) > 0;
}

nn::DistanceOptions distance_options(const ModelConfig& config) {
  const int64_t longest = max_relative_positions(config);
  return {.span = has_buckets(config) ? *config.encoder.position_buckets : longest,
          .has_buckets = has_buckets(config),
          .longest = longest};
}

// What all layers read: the table of relative positions [P, C] and the row of each distance.
struct DistanceTable {
  nn::Value rows;  // undefined: attention without relative positions
  nn::Distances distances;
};

// BERT's layer with relative-position terms in the attention scores.
class DebertaLayer {
 public:
  DebertaLayer(const nn::Scope& scope, const ModelConfig& config, int64_t layer)
      : attention_{.heads = config.num_attention_heads,
                   .layer = layer,
                   .dropout = config.attention_probs_dropout_prob,
                   .scale = score_scale(config)},
        table_dropout_(config.hidden_dropout_prob),
        is_shared_(config.encoder.share_att_key.value_or(false)),
        has_keys_(has_term(config, "c2p")),
        has_queries_(has_term(config, "p2c")),
        query_(scope / "attention" / "self" / "query_proj", config.hidden_size, config.hidden_size),
        key_(scope / "attention" / "self" / "key_proj", config.hidden_size, config.hidden_size),
        value_(scope / "attention" / "self" / "value_proj", config.hidden_size,
               config.hidden_size) {
    const int64_t size = config.hidden_size;
    const nn::Scope self = scope / "attention" / "self";
    if (!is_shared_ && has_keys_) distance_key_.emplace(self / "pos_key_proj", size, size);
    if (!is_shared_ && has_queries_) distance_query_.emplace(self / "pos_query_proj", size, size);
    const auto residual = [&](DropoutSite site) -> nn::ResidualOptions {
      return {.epsilon = config.layer_norm_eps,
              .dropout = config.hidden_dropout_prob,
              .layer = layer,
              .site = site};
    };
    attention_output_.emplace(scope / "attention" / "output", size, size,
                              residual(DropoutSite::kAttentionOutput));
    intermediate_.emplace(
        scope / "intermediate", size, config.intermediate_size,
        config.hidden_act == "gelu" ? nullptr : find_activation(config.hidden_act));
    output_.emplace(scope / "output", config.intermediate_size, size,
                    residual(DropoutSite::kFeedForwardOutput));
  }

  nn::Value operator()(const nn::Value& x, const DistanceTable& table, nn::Pass& p) const {
    nn::Projections tokens = {.value = value_(x, p), .key = key_(x, p), .query = query_(x, p)};
    nn::DistanceProjections distances = project(table, p);
    const nn::Value h = (*attention_output_)(
        nn::attend(std::move(tokens), std::move(distances), table.distances, attention_, p), x, p);
    return (*output_)((*intermediate_)(h, p), h, p);
  }

 private:
  // 1 / sqrt(D n) for n terms, even without a table of relative positions.
  static double score_scale(const ModelConfig& config) {
    const auto terms = static_cast<double>(1 + config.encoder.pos_att_type.size());
    return 1.0 / std::sqrt(static_cast<double>(config.hidden_size) /
                           static_cast<double>(config.num_attention_heads) * terms);
  }

  [[nodiscard]] nn::DistanceProjections project(const DistanceTable& table, nn::Pass& p) const {
    if (!has_keys_ && !has_queries_) return {};
    const nn::Value rows = nn::drop_distances(table.rows, table_dropout_, attention_.layer, p);
    nn::DistanceProjections distances;
    if (has_keys_) distances.key = is_shared_ ? key_.again(rows, p) : (*distance_key_)(rows, p);
    if (has_queries_) {
      distances.query = is_shared_ ? query_.again(rows, p) : (*distance_query_)(rows, p);
    }
    return distances;
  }

  nn::DisentangledOptions attention_;
  double table_dropout_;
  bool is_shared_, has_keys_, has_queries_;
  nn::Linear query_, key_, value_;
  std::optional<nn::Linear> distance_key_, distance_query_;
  std::optional<nn::AddAndNorm> attention_output_;
  std::optional<nn::DenseActivation> intermediate_;
  std::optional<nn::AddAndNorm> output_;
};

// Sets x to zero at padding tokens, as transformers multiplies embeddings by the mask. This matters
// because queries at padding, whose scores are all equal, average the values of all tokens.
nn::Value without_padding_values(nn::Value x, nn::Pass& p) {
  if (p.layout() || !p.inputs().mask.defined()) return x;
  const Tensor keeps = p.inputs().mask.squeeze(1).transpose(1, 2).to(at::kFloat);  // [B, T, 1]
  const nn::Value y = p.result(x.tensor * keeps);
  p.record(y, [keeps, dx = x.slot](const Tensor& dy) {
    if (dx) dx->give(dy * keeps);
  });
  return y;
}

class DebertaModel final : public Backbone {
 public:
  DebertaModel(const nn::Scope& scope, const ModelConfig& config)
      : config_(config),
        words_(scope / "embeddings" / "word_embeddings", config.vocab_size, config.hidden_size,
               ParameterRole::kWordEmbedding) {
    const nn::Scope embeddings = scope / "embeddings";
    const int64_t size = config.hidden_size;
    if (config.encoder.position_biased_input) {
      positions_.emplace(embeddings / "position_embeddings", config.max_position_embeddings, size);
    }
    if (config.type_vocab_size > 0) {
      types_.emplace(embeddings / "token_type_embeddings", config.type_vocab_size, size);
    }
    norm_.emplace(embeddings / "LayerNorm", size, config.layer_norm_eps);
    const nn::Scope encoder = scope / "encoder";
    for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
      layers_.emplace_back(encoder / "layer" / layer, config, layer);
    }
    if (config.encoder.relative_attention) {
      distances_.emplace(encoder / "rel_embeddings", 2 * distance_options(config).span, size);
    }
    if (config.encoder.norm_rel_ebd.value_or("none") != "none") {
      distance_norm_.emplace(encoder / "LayerNorm", size, config.layer_norm_eps);
    }
  }

  nn::Value operator()(const ModelInput& input, nn::Pass& p) override {
    const DistanceTable table = distance_table(input, p);
    return nn::sequence(layers_, nn::to_precision(embed(input, p), p), p, table);
  }
  [[nodiscard]] const Tensor& word_embedding() const override { return words_.weight(); }

 private:
  [[nodiscard]] nn::Value embed(const ModelInput& input, nn::Pass& p) const {
    std::vector<nn::Value> terms = {
        words_(without_padding(input.input_ids, p), p, config_.pad_token_id)};
    if (positions_) {
      const Tensor places = p.layout()
                                ? p.layout()->places
                                : at::arange(input.input_ids.size(1), input.input_ids.options());
      terms.push_back((*positions_)(places, p));
    }
    if (types_) terms.push_back(embed_types(*types_, input, p));
    nn::Value x = terms.size() == 1 ? std::move(terms.front()) : nn::add(terms, p);
    return nn::dropout(without_padding_values((*norm_)(x, p), p),
                       {.p = config_.hidden_dropout_prob}, p);
  }

  [[nodiscard]] DistanceTable distance_table(const ModelInput& input, nn::Pass& p) const {
    const int64_t longest = p.layout() ? p.layout()->longest : input.input_ids.size(1);
    const c10::Device device = input.input_ids.device();
    if (!distances_) {
      nn::DistanceOptions options = {.span = longest};
      return {.rows = {}, .distances = nn::make_distances(options, longest, device)};
    }
    const nn::DistanceOptions options = distance_options(config_);
    nn::Value rows = (*distances_)(at::arange(2 * options.span, input.input_ids.options()), p);
    if (distance_norm_) rows = (*distance_norm_)(rows, p);
    return {.rows = nn::to_precision(std::move(rows), p),
            .distances = nn::make_distances(options, longest, device)};
  }

  ModelConfig config_;
  nn::Embedding words_;
  std::optional<nn::Embedding> positions_, types_;
  std::optional<nn::LayerNorm> norm_;
  std::vector<DebertaLayer> layers_;
  std::optional<nn::Embedding> distances_;
  std::optional<nn::LayerNorm> distance_norm_;
};

// "lm_predictions.lm_head": the head of models with legacy = false; always tied.
class DebertaLmHead final : public DenseLmHead {
 public:
  DebertaLmHead(const nn::Scope& scope, const ModelConfig& config)
      : DenseLmHead(scope, {scope / "dense", scope / "LayerNorm"}, tied(config),
                    config.hidden_act) {}

 private:
  static ModelConfig tied(ModelConfig config) {
    config.tie_word_embeddings = true;
    return config;
  }
};

// logits = W2 Dropout(f(W1 Dropout(first token) + b1)) + b2: "pooler.dense" and "classifier".
class ContextClassifier final : public ModelHead {
 public:
  ContextClassifier(const nn::Scope& root, const ModelConfig& config, int64_t outputs)
      : activation_(find_activation(config.encoder.pooler_hidden_act)),
        dropout_of_input_(config.encoder.pooler_dropout),
        dropout_(config.encoder.cls_dropout.value_or(config.hidden_dropout_prob)),
        dense_(root / "pooler" / "dense", config.hidden_size, config.hidden_size),
        classifier_(root / "classifier", config.hidden_size, outputs) {}

  nn::Value operator()(const HeadInput& in, nn::Pass& p) const override {
    const nn::Value first = nn::dropout(nn::first_token(in.hidden, p),
                                        {dropout_of_input_, 0, DropoutSite::kClassifierInput}, p);
    nn::Value pooled = nn::activate(dense_(first, p), activation_, p);
    return classifier_(nn::dropout(std::move(pooled), {dropout_, 0, DropoutSite::kPooledOutput}, p),
                       p);
  }

 private:
  Activation activation_;
  double dropout_of_input_, dropout_;
  nn::Linear dense_, classifier_;
};

// He et al. 2021a, "DeBERTa", and 2021b, "DeBERTaV3"
class DebertaV2 final : public Architecture {
 public:
  [[nodiscard]] std::string model_type() const override { return "deberta-v2"; }
  [[nodiscard]] std::string class_prefix() const override { return "DebertaV2"; }
  [[nodiscard]] std::string backbone_name() const override { return "deberta"; }
  [[nodiscard]] std::string lm_head_name() const override { return "cls.predictions"; }
  [[nodiscard]] bool has_next_sentence_head() const override { return false; }
  [[nodiscard]] bool has_decoder_fields() const override { return false; }
  [[nodiscard]] bool keeps_tables() const override { return true; }

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
    const auto require = [&](const char* name, const std::optional<int64_t>& value,
                             const char* other, int64_t expected) {
      if (value.value_or(expected) == expected) return;
      refuse(format_text("{} {} differs from {} {}, which is not available", name, *value, other,
                         expected));
    };
    require("pooler_hidden_size", own.pooler_hidden_size, "hidden_size", config.hidden_size);
    require("embedding_size", own.embedding_size, "hidden_size", config.hidden_size);
    require("attention_head_size", own.attention_head_size,
            "hidden_size / num_attention_heads =", config.hidden_size / config.num_attention_heads);
    if (own.conv_kernel_size.value_or(0) > 0) {
      refuse(
          format_text("conv_kernel_size {} asks for a convolution after the first layer "
                      "(deberta-v2-xlarge), which is not available; deberta-v3 has none",
                      *own.conv_kernel_size));
    }
    check_known("pooler_hidden_act", own.pooler_hidden_act, activation_names(), refuse);
    complete_terms(own, refuse);
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
    if (!head) return std::make_unique<DebertaLmHead>(root / "lm_predictions" / "lm_head", config);
    const int64_t labels = count_labels(config);
    switch (*head) {
      case Head::kPretraining:
        refuse_next_sentence_head(config);
      case Head::kSequenceClassification:
        return std::make_unique<ContextClassifier>(root, config, labels);
      case Head::kMultipleChoice:
        return std::make_unique<ContextClassifier>(root, config, 1);
      case Head::kTokenClassification:
        return std::make_unique<TokenClassifier>(root / "classifier", config, labels,
                                                 config.hidden_dropout_prob);
      case Head::kQuestionAnswering:
        return std::make_unique<TokenClassifier>(root / "qa_outputs", config, labels, 0.0);
    }
    FT_CHECK(false, "a head without a class");
  }

  [[nodiscard]] TiedNames tied_names(const ModelConfig& config) const override {
    if (!config.encoder.legacy) return {};
    return Architecture::tied_names(config);
  }

 private:
  // Files of version 3 have "p2c|c2p"; transformers writes a list.
  static void complete_terms(EncoderConfig& own, const Refuse& refuse) {
    std::vector<std::string> terms;
    for (const std::string& given : own.pos_att_type) {
      for (size_t start = 0; start <= given.size();) {
        const size_t end = std::min(given.find('|', start), given.size());
        std::string term = given.substr(start, end - start);
        std::erase(term, ' ');
        if (term != "c2p" && term != "p2c") {
          refuse("pos_att_type has '" + term + "', but only 'c2p' and 'p2c' are available");
        }
        terms.push_back(std::move(term));
        start = end + 1;
      }
    }
    own.pos_att_type = std::move(terms);
  }

  static void check_distances(const ModelConfig& config, const Refuse& refuse) {
    const int64_t longest = max_relative_positions(config);
    if (!has_buckets(config)) {
      if (longest <= kMostDistances) return;
      refuse(
          format_text("max_relative_positions (max_position_embeddings where it is -1) is {}, "
                      "but without position_buckets at most {} are available",
                      longest, kMostDistances));
    }
    const int64_t buckets = *config.encoder.position_buckets;
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
