// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "finetune/nn/attention.h"
#include "finetune/nn/embedding.h"
#include "finetune/nn/experts.h"
#include "finetune/nn/feed_forward.h"
#include "finetune/nn/norm.h"
#include "finetune/nn/recurrent.h"
#include "model/architecture.h"
#include "model/per_layer_input.h"

// The block that families of decoders share: attention and a gated feed-forward network, each with
// norms where the family's options say. Scopes are the names in the checkpoint.
namespace finetune {

// Names of the norms in the checkpoint; null: the family has no norm there.
struct DecoderNorms {
  const char* before_attention = "input_layernorm";
  const char* after_attention = nullptr;
  const char* before_feed_forward = "post_attention_layernorm";
  const char* after_feed_forward = nullptr;
  bool before_come_first = false;  // in the order of transformers' parameters
};

// Norms of the outputs of attention and feed-forward network, and none of their inputs.
inline constexpr DecoderNorms kNormsOfOutputs = {
    .before_attention = nullptr,
    .after_attention = "post_attention_layernorm",
    .before_feed_forward = nullptr,
    .after_feed_forward = "post_feedforward_layernorm"};

// Names of other parts in the checkpoint.
struct DecoderNames {
  const char* words = "embed_tokens";
  const char* attention = "self_attn";
  const char* query_key_value = "qkv_proj";  // of fused projections
  const char* output = "o_proj";
  const char* convolution = "conv";  // of layers that have one instead of attention
  const char* delta_net = "linear_attn";
  const char* feed_forward = "mlp";
  const char* gate = "gate_proj";
  const char* up = "up_proj";
  const char* down = "down_proj";
  const char* query_norm = "q_norm";
  const char* key_norm = "k_norm";
  const char* last_norm = "norm";
};

struct DecoderOptions {
  int64_t hidden = 0, intermediate = 0, layers = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  double epsilon = 1e-6;
  bool adds_one_to_norms = false;  // y = x / rms(x) * (1 + weight)
  DecoderNorms norms = {};
  // Where the norms of a layer are in the same order.
  enum class NormsCome { kLast, kBeforeFeedForward, kFirst };
  NormsCome norms_come = NormsCome::kLast;
  DecoderNames names = {};
  enum class QueryKeyNorm { kNone, kOfHeads, kOfRows };
  QueryKeyNorm query_key_norm = QueryKeyNorm::kNone;
  // Where transformers registers these norms: at the end, both after q_proj, or that of queries
  // after q_proj and that of keys after v_proj.
  enum class NormOrder { kLast, kAfterQueries, kAfterProjections };
  NormOrder norm_order = NormOrder::kLast;
  bool norms_values = false;          // by a norm of heads without weights
  bool rotates_before_norms = false;  // of queries and keys
  // The output of each head is multiplied by the sigmoid of a gate from q_proj.
  bool gates_attention = false;
  bool values_are_keys = false;  // layers without a window have no v_proj: k_proj's output is both
  bool qkv_bias = false, output_bias = false, feed_forward_bias = false;
  bool has_layer_norms = false;        // instead of RMS norms
  bool has_norm_weights = true;        // of RMS norms
  bool norms_embeddings = false;       // by a norm without weights
  const char* ungated_up = nullptr;    // the feed-forward network has no gate, but these two
  const char* ungated_down = nullptr;  // products
  bool has_xielu = false;              // between them, instead of `activation`
  // Attention and feed-forward network read the same hidden states; without a norm before the
  // latter they share the first.
  bool is_parallel = false;
  bool fuses_qkv = false;      // one matrix
  bool fuses_by_head = false;  // its rows: query, key and value of the first head, of the second
  bool fuses_gate_up = false;  // "gate_up_proj"
  // Values 2 i and 2 i + 1 of a head rotate together, instead of i and i + R / 2.
  bool rotates_neighbours = false;
  bool rotates_backwards = false;  // by the negative angle
  Activation activation = nullptr;
  std::vector<int64_t> rope_of_layer =
      {};  // index of rope_parameters; -1: the layer does not rotate
  // number of tokens that a token attends to; 0: all before it
  std::vector<int64_t> window_of_layer = {};
  // Layers that are not attention.
  enum class Mixer { kAttention, kConvolution, kDeltaNet };
  std::vector<Mixer> mixer_of_layer = {};
  // The layer whose keys and values a layer reads; empty: each its own.
  std::vector<int64_t> keys_of_layer = {};
  // Sizes that differ from those above; empty: none do.
  struct LayerSizes {
    int64_t intermediate = 0, kv_heads = 0, head_dim = 0;
  };
  std::vector<LayerSizes> sizes_of_layer = {};
  PerLayerInputOptions per_layer_input = {};
  nn::ExpertsOptions experts = {};     // instead of the feed-forward network
  std::vector<bool> has_experts = {};  // by layer; empty: all, if there are experts
  bool scales_layers = false;          // the output of each by its constant
  int64_t convolution = 0;             // tokens that it reads
  bool convolution_bias = false;
  nn::DeltaNetOptions delta_net = {};
  bool causal = true;        // a token attends to itself and to earlier tokens
  double query_scale = 0.0;  // 0: 1 / sqrt(head_dim)
  double softcap = 0.0;      // of scores; 0: none
  bool has_sinks = false;    // of attention, "sinks"
  double attention_dropout = 0.0, embedding_dropout = 0.0;
  double attention_output_dropout = 0.0, feed_forward_dropout = 0.0;
  double embedding_scale = 1.0, residual_scale = 1.0;
  bool has_padding_row = true;  // the embedding's row of pad_token_id does not train
  bool lm_head_bias = false;
};

// Returns a type for each layer: `sliding_attention` for layer i if is_sliding(i).
[[nodiscard]] std::vector<std::string> layer_types(const ModelConfig& config,
                                                   const std::function<bool(int64_t)>& is_sliding);
// Refuse rotary parameters or layer types that do not fit the other fields. `layers`: "" or a layer
// type.
void check_rope(const ModelConfig& config, const std::string& layers, const RopeParameters& rope,
                const Architecture::Refuse& refuse);
void check_layer_types(const ModelConfig& config, const Architecture::Refuse& refuse,
                       const std::vector<std::string>& known = {"full_attention",
                                                                "sliding_attention"});
// Returns the rotations of a pass's tokens, one for each of the configuration's rope_parameters.
// Without `head_dim`: of heads as the configuration has them.
[[nodiscard]] std::vector<nn::Rotation> rope_rotations(const ModelConfig& config,
                                                       const ModelInput& input,
                                                       const TokenLayout* layout,
                                                       std::optional<int64_t> head_dim = {});
// Refuses norms of the heads of queries and keys (qk_layernorm), for families without them here.
void refuse_query_key_norms(const ModelConfig& config, const Architecture::Refuse& refuse);
// Adds the fields of families whose layers have experts, and refuses what does not fit.
void add_expert_fields(ConfigFields& fields, ModelConfig& config);
void check_experts(const ModelConfig& config, const Architecture::Refuse& refuse,
                   const std::string& count = "num_experts");
[[nodiscard]] nn::ExpertsOptions experts_of(const ModelConfig& config, int64_t intermediate);
// Adds the fields of families whose layers have sliding windows.
void add_window_fields(ConfigFields& fields, ModelConfig& config);

// Returns the options of Llama's block; families change what differs.
[[nodiscard]] DecoderOptions decoder_options(const ModelConfig& config);

// Gives every layer the configuration's window.
void slide_every_layer(const ModelConfig& config, DecoderOptions& options);
// Sets the dropout at the end of both parts of a layer.
void drop_residuals(double dropout, DecoderOptions& options);
// Gives each layer the rotary parameters of its type: full_attention or sliding_attention.
void rotate_by_layer_type(const ModelConfig& config, DecoderOptions& options);

// The options of one layer.
[[nodiscard]] DecoderOptions options_of_layer(const DecoderOptions& options, int64_t layer);

// Values of one pass that layers read besides hidden states, by layer: what is made for them, and
// keys and values of layers that others read them of.
struct LayerValues {
  std::vector<nn::Value> inputs;  // [B, T, D]
  std::vector<nn::SharedValue> keys, values;
};

class DecoderAttention {
 public:
  // `options`: of the layer.
  DecoderAttention(const nn::Scope& scope, const DecoderOptions& options, int64_t layer);
  nn::Value operator()(const nn::Value& x, LayerValues& shared, nn::Pass& p) const;

 private:
  void make_norms(const nn::Scope& scope, const DecoderOptions& options,
                  DecoderOptions::NormOrder order);
  // `gate`: set where there is one. Without keys and values where another layer has them.
  [[nodiscard]] nn::Projections project(const nn::Value& x, std::optional<nn::Value>& gate,
                                        nn::Pass& p) const;
  [[nodiscard]] nn::Projections rotated(nn::Projections all, nn::Pass& p) const;
  [[nodiscard]] nn::Projections normed(nn::Projections all, nn::Pass& p) const;
  // Keys and values are those of the layer that has them.
  void share(nn::Projections& all, LayerValues& shared, nn::Pass& p) const;
  [[nodiscard]] nn::Value normed_heads(nn::Value x, int64_t heads,
                                       const std::optional<nn::RmsNorm>& norm, nn::Pass& p) const;

  nn::AttentionOptions attention_;
  int64_t rope_;
  bool rotates_neighbours_, rotates_before_norms_;
  bool norms_heads_, is_gated_;
  std::optional<nn::Linear> query_, key_, value_;
  std::optional<nn::FusedProjections> query_key_value_;
  std::optional<nn::Linear> output_;
  std::optional<nn::RmsNorm> query_norm_, key_norm_, value_norm_;
  Weight sinks_;     // [heads], or undefined
  int64_t keys_of_;  // the layer whose keys and values these are
  bool is_shared_;   // by layers with other queries
};

// What mixes the tokens of a layer.
using TokenMixer = std::variant<DecoderAttention, nn::GatedConvolution, nn::GatedDeltaNet>;

using LayerNetwork = std::variant<nn::GatedFeedForward, nn::FeedForward, nn::MixtureOfExperts>;

// h = x + Attention(x), y = h + FeedForward(h), with norms before or after each, or both; in
// parallel y = x + Attention(x) + FeedForward(x). Some add the layer's input, and scale the
// sum.
class DecoderLayer {
 public:
  // `options`: of all layers.
  DecoderLayer(const nn::Scope& scope, const DecoderOptions& options, int64_t layer);
  nn::Residual operator()(nn::Residual x, const std::shared_ptr<LayerValues>& values,
                          nn::Pass& p) const;

 private:
  void make_norms(const nn::Scope& scope, const DecoderOptions& options);
  [[nodiscard]] nn::Value attended(nn::Value x, LayerValues& values, nn::Pass& p) const;
  // The layer's own input added, and the sum scaled.
  [[nodiscard]] nn::Value with_input(nn::Residual x, const LayerValues& values, nn::Pass& p) const;
  [[nodiscard]] nn::Value fed_forward(nn::Value x, nn::Pass& p) const;

  std::optional<TokenMixer> mixer_;
  std::optional<LayerNetwork> feed_forward_;
  std::optional<DecoderNorm> before_attention_, after_attention_, before_feed_forward_,
      after_feed_forward_;
  nn::DropoutPoint attention_dropout_, feed_forward_dropout_;
  double residual_scale_;
  bool is_parallel_;
  int64_t layer_;
  std::optional<PerLayerInput> input_;
  Weight scale_;  // [1]
};

// Embeddings and layers. The last norm belongs to the head, which computes it only where it is
// needed.
class Decoder final : public Backbone {
 public:
  Decoder(const nn::Scope& scope, const ModelConfig& config, const DecoderOptions& options);
  nn::Value operator()(const ModelInput& input, nn::Pass& p) override;
  [[nodiscard]] std::vector<nn::Rotation> rotations(const ModelInput& input,
                                                    const TokenLayout* layout) const override;
  [[nodiscard]] const Weight& word_embedding() const override { return words_.weight(); }
  [[nodiscard]] std::optional<int64_t> last_layer() const override {
    return std::ssize(layers_) - 1;
  }

 private:
  ModelConfig config_;
  DecoderOptions options_;
  int64_t padding_row_;  // -1: none
  nn::Embedding words_;
  std::optional<nn::RmsNorm> norm_;  // of the embeddings
  std::vector<DecoderLayer> layers_;
  std::optional<PerLayerInputs> inputs_;
};

// The common part of decoder families; a family sets defaults, fields and options.
class DecoderFamily : public Architecture {
 public:
  [[nodiscard]] bool is_causal() const override { return true; }
  [[nodiscard]] std::string backbone_name() const override { return "model"; }
  [[nodiscard]] std::string lm_head_name() const override { return "lm_head"; }
  [[nodiscard]] bool has_next_sentence_head() const override { return false; }
  // Those of a language model in the folder of a model of images and text.
  [[nodiscard]] StoredNames stored_names() const override {
    return {{"^model.language_model.", {"model."}},
            {"^language_model.model.", {"model."}},
            {"^language_model.lm_head.", {"lm_head."}}};
  }
  [[nodiscard]] TiedNames tied_names(const ModelConfig& config) const override;
  [[nodiscard]] std::optional<int64_t> padding_row(const ModelConfig& config,
                                                   const Parameter& parameter) const override;

  void set_defaults(ModelConfig& config) const override;
  [[nodiscard]] ConfigFields fields(ModelConfig& config) const override;
  void complete(ModelConfig& config, const Refuse& refuse) const override;
  [[nodiscard]] std::unique_ptr<Backbone> make_backbone(const nn::Scope& scope,
                                                        const ModelConfig& config,
                                                        std::optional<Head> head) const override;
  [[nodiscard]] std::unique_ptr<ModelHead> make_head(const nn::Scope& root,
                                                     const ModelConfig& config,
                                                     std::optional<Head> head) const override;
  [[nodiscard]] std::optional<DecoderNorm> last_norm(const nn::Scope& backbone,
                                                     const ModelConfig& config) const override;

 protected:
  // The layer types of a configuration that has none; empty: the family has no layer types.
  [[nodiscard]] virtual std::vector<std::string> fresh_layer_types(
      const ModelConfig& /*config*/) const {
    return {};
  }
  [[nodiscard]] virtual std::vector<std::string> known_layer_types() const {
    return {"full_attention", "sliding_attention"};
  }
  // partial_rotary_factor where a configuration has none; nullopt: with rope_type default it is
  // not read. With others it always is.
  [[nodiscard]] virtual std::optional<double> rotated_share() const { return std::nullopt; }
  // Whether these members of rope_parameters are read, which transformers ignores elsewhere.
  [[nodiscard]] virtual bool reads_alpha() const { return false; }
  [[nodiscard]] virtual bool reads_llama_4_scaling() const { return false; }
  // Whether transformers has a class of the family that classifies sequences, and one that
  // classifies tokens; none has other heads.
  [[nodiscard]] virtual bool has_sequence_classifier() const { return true; }
  [[nodiscard]] virtual bool has_token_classifier() const { return true; }
  [[nodiscard]] virtual const char* token_classifier_name() const { return "score"; }
  [[nodiscard]] virtual DecoderOptions options(const ModelConfig& config) const {
    return decoder_options(config);
  }
};

}  // namespace finetune
