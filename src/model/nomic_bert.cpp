// SPDX-License-Identifier: MIT
// Encoders with BERT's embeddings and norms, rotary positions and a gated feed-forward network.
#include "finetune/nn/attention.h"
#include "finetune/nn/feed_forward.h"
#include "model/activation.h"
#include "model/architecture.h"
#include "model/decoder.h"
#include "model/embeddings.h"

namespace finetune {
namespace {

bool is_gte(const ModelConfig& config) { return config.model_type == "gte"; }

// h = LN(x + O Attention(x)), y = LN(h + FeedForward(h)), with dropout before each sum.
class NomicBertLayer {
 public:
  NomicBertLayer(const nn::Scope& scope, const ModelConfig& config, int64_t layer)
      : attention_{.heads = config.num_attention_heads,
                   .layer = layer,
                   .dropout = config.attention_probs_dropout_prob},
        dropout_(config.hidden_dropout_prob),
        attention_norm_(scope / "post_attention_layernorm", config.hidden_size,
                        config.layer_norm_eps),
        feed_forward_(scope / "mlp", {.size = config.hidden_size,
                                      .intermediate = config.intermediate_size,
                                      .activation = find_activation(config.hidden_act),
                                      .has_down_bias = is_gte(config),
                                      .dropout = {is_gte(config) ? dropout_ : 0.0, layer,
                                                  DropoutSite::kFeedForwardHidden}}),
        query_(projection(scope, "q_proj", config)),
        key_(projection(scope, "k_proj", config)),
        value_(projection(scope, "v_proj", config)),
        output_(scope / "self_attn" / "o_proj", heads_size(config), config.hidden_size,
                is_gte(config)),
        feed_forward_norm_(scope / "post_mlp_layernorm", config.hidden_size,
                           config.layer_norm_eps) {}

  nn::Value operator()(const nn::Value& x, nn::Pass& p) const {
    const int64_t layer = attention_.layer;
    nn::Value attended = nn::dropout(attend(nn::to_precision(x, p), p),
                                     {dropout_, layer, DropoutSite::kAttentionOutput}, p);
    const nn::Value h =
        attention_norm_(nn::add({nn::read_tokens(x, layer, p), std::move(attended)}, p), p);
    nn::Value fed = nn::dropout(feed_forward_(nn::to_precision(h, p), p),
                                {dropout_, layer, DropoutSite::kFeedForwardOutput}, p);
    return feed_forward_norm_(nn::add({h, std::move(fed)}, p), p);
  }

 private:
  static int64_t heads_size(const ModelConfig& config) {
    return config.num_attention_heads * *config.decoder.head_dim;
  }
  static nn::Linear projection(const nn::Scope& scope, const char* name,
                               const ModelConfig& config) {
    return {scope / "self_attn" / name, config.hidden_size, heads_size(config), is_gte(config)};
  }

  [[nodiscard]] nn::Value attend(const nn::Value& x, nn::Pass& p) const {
    const nn::Linear::SharedInput shared(x, {&value_, &key_, &query_}, p);
    nn::Projections all = {.value = value_(x, shared, p),
                           .key = key_(x, shared, p),
                           .query = query_(nn::query_tokens(x, attention_, p), shared, p)};
    const int64_t head_size = all.query.tensor.size(-1) / attention_.heads;
    all = nn::rope(std::move(all), head_size, p.options().rotations.front(), p);
    return output_(nn::attend(std::move(all), attention_, p), p);
  }

  nn::AttentionOptions attention_;
  double dropout_;
  // In transformers' order.
  nn::LayerNorm attention_norm_;
  nn::GatedFeedForward feed_forward_;
  nn::Linear query_, key_, value_, output_;
  nn::LayerNorm feed_forward_norm_;
};

class NomicBertModel final : public Backbone {
 public:
  NomicBertModel(const nn::Scope& scope, const ModelConfig& config, bool pools)
      : config_(config),
        embeddings_(scope / "embeddings", config,
                    {.types = config.type_vocab_size > 0, .positions = false}),
        pooler_(pools ? std::optional<Pooler>(std::in_place, scope / "pooler" / "dense", config)
                      : std::nullopt),
        layers_(make_layers<NomicBertLayer>(scope / "layers", config)) {}

  nn::Value operator()(const ModelInput& input, nn::Pass& p) override {
    return nn::sequence(layers_, embeddings_(input, p), p);
  }
  [[nodiscard]] nn::Value pool(const nn::Value& hidden, nn::Pass& p) const override {
    return (*pooler_)(hidden, p);
  }
  [[nodiscard]] std::vector<nn::Rotation> rotations(const ModelInput& input,
                                                    const TokenLayout* layout) const override {
    return rope_rotations(config_, input, layout);
  }
  [[nodiscard]] const Weight& word_embedding() const override {
    return embeddings_.word_embedding();
  }
  [[nodiscard]] std::optional<int64_t> last_layer() const override {
    return std::ssize(layers_) - 1;
  }

 private:
  ModelConfig config_;
  BertEmbeddings embeddings_;
  std::optional<Pooler> pooler_;  // before the layers, as in transformers
  std::vector<NomicBertLayer> layers_;
};

// Nussbaum et al. 2024
class NomicBert : public Architecture {
 public:
  [[nodiscard]] std::string model_type() const override { return "nomic_bert"; }
  [[nodiscard]] std::string class_prefix() const override { return "NomicBert"; }
  [[nodiscard]] std::string backbone_name() const override { return "nomic_bert"; }
  [[nodiscard]] std::string lm_head_name() const override { return "cls.predictions"; }
  [[nodiscard]] bool has_next_sentence_head() const override { return false; }
  [[nodiscard]] bool has_decoder_fields() const override { return false; }

  void set_defaults(ModelConfig& config) const override {
    config.vocab_size = 30528;
    config.hidden_act = "silu";
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0;
    config.max_position_embeddings = 2048;
    config.pad_token_id = 0;
    config.bos_token_id.reset();
    config.eos_token_id.reset();
    config.decoder.rope_parameters[""].rope_theta = 1000.0;
  }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    ConfigFields fields =
        with_fields(without_fields(Architecture::fields(c), {"tie_word_embeddings"}),
                    {old_name("tie_word_embeddings", &c.tie_word_embeddings),
                     {"rope_parameters", &c.decoder.rope_parameters},
                     {"head_dim", &c.decoder.head_dim, 1, 4096}});
    // transformers writes it where it differs.
    if (!c.tie_word_embeddings) {
      fields.push_back({"tie_word_embeddings", &c.tie_word_embeddings});
    }
    return fields;
  }

  void complete(ModelConfig& config, const Refuse& refuse) const override {
    Architecture::complete(config, refuse);
    if (!config.decoder.head_dim) {
      config.decoder.head_dim = config.hidden_size / config.num_attention_heads;
    }
    for (auto& [layers, rope] : config.decoder.rope_parameters) {
      if (rope.rope_type == "default") rope.partial_rotary_factor.reset();
      check_rope(config, layers, rope, refuse);
    }
  }

  [[nodiscard]] std::unique_ptr<Backbone> make_backbone(const nn::Scope& scope,
                                                        const ModelConfig& config,
                                                        std::optional<Head> head) const override {
    return std::make_unique<NomicBertModel>(scope, config, head == Head::kSequenceClassification);
  }

  [[nodiscard]] std::unique_ptr<ModelHead> make_head(const nn::Scope& root,
                                                     const ModelConfig& config,
                                                     std::optional<Head> head) const override {
    if (!head) return make_lm_head(root, config);
    const nn::Scope classifier = root / "classifier";
    const int64_t labels = count_labels(config);
    if (*head == Head::kSequenceClassification) {
      return std::make_unique<PooledClassifier>(classifier, config, labels, head_dropout(config));
    }
    if (*head != Head::kTokenClassification) refuse_head(config);
    return std::make_unique<TokenClassifier>(classifier, config, labels, head_dropout(config));
  }

  [[nodiscard]] StoredNames stored_names() const override {
    return {{"encoder.layers", {"layers"}},
            {"emb_ln", {"embeddings.LayerNorm"}},
            {"attn.out_proj", {"self_attn.o_proj"}},
            {"fc11", {"up_proj"}},
            {"fc12", {"gate_proj"}},
            {"fc2", {"down_proj"}},
            {"norm1", {"post_attention_layernorm"}},
            {"norm2", {"post_mlp_layernorm"}},
            {"attn.Wqkv", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}}};
  }

 protected:
  [[nodiscard]] virtual std::unique_ptr<ModelHead> make_lm_head(const nn::Scope& root,
                                                                const ModelConfig& config) const {
    const nn::Scope head = root / "cls" / "predictions";
    return std::make_unique<DenseLmHead>(
        head, DenseLmHead::Names{head / "transform" / "dense", head / "transform" / "layer_norm"},
        config, config.hidden_act);
  }
};

// Zhang et al. 2024 (mGTE): the same with biases.
class Gte final : public NomicBert {
 public:
  [[nodiscard]] std::string model_type() const override { return "gte"; }
  [[nodiscard]] std::string class_prefix() const override { return "Gte"; }
  [[nodiscard]] std::string backbone_name() const override { return "gte"; }
  [[nodiscard]] std::string lm_head_name() const override { return "lm_head.decoder"; }

  void set_defaults(ModelConfig& config) const override {
    NomicBert::set_defaults(config);
    config.vocab_size = 250048;
    config.hidden_act = "gelu";
    config.hidden_dropout_prob = 0.1;
    config.max_position_embeddings = 8192;
    config.type_vocab_size = 1;
    config.pad_token_id = 1;
    config.decoder.rope_parameters[""].rope_theta = 160000.0;
  }
  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(without_fields(Architecture::fields(c), {"type_vocab_size"}),
                       {{"type_vocab_size", &c.type_vocab_size, 0, 1024},
                        {"rope_parameters", &c.decoder.rope_parameters}});
  }

  [[nodiscard]] StoredNames stored_names() const override {
    return {{"^new.", {""}},
            {"encoder.layer.", {"layers."}},
            {"attention.o_proj", {"self_attn.o_proj"}},
            {"attn_ln", {"post_attention_layernorm"}},
            {"mlp_ln", {"post_mlp_layernorm"}},
            {"lm_head.norm", {"lm_head.layer_norm"}},
            {"attention.qkv_proj", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}},
            {"mlp.up_gate_proj", {"mlp.up_proj", "mlp.gate_proj"}}};
  }
  [[nodiscard]] TiedNames tied_names(const ModelConfig& config) const override {
    if (!config.tie_word_embeddings) return {};
    return {{"gte.embeddings.word_embeddings.weight", "lm_head.decoder.weight"}};
  }

 protected:
  [[nodiscard]] std::unique_ptr<ModelHead> make_lm_head(const nn::Scope& root,
                                                        const ModelConfig& config) const override {
    const nn::Scope head = root / "lm_head";
    return std::make_unique<DenseLmHead>(
        // In braces, which are evaluated in order.
        HeadTransform{
            {head / "dense", config.hidden_size, config.hidden_size},
            find_activation("gelu"),
            nn::LayerNorm(head / "layer_norm", config.hidden_size, config.layer_norm_eps)},
        head / "decoder", config, /*has_bias=*/true);
  }
};

}  // namespace

const Architecture& nomic_bert_architecture() {
  static const NomicBert kNomicBert;
  return kNomicBert;
}

const Architecture& gte_architecture() {
  static const Gte kGte;
  return kGte;
}

}  // namespace finetune
