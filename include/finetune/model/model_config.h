// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "finetune/nn/lora.h"
#include "finetune/tensor/stored_names.h"

namespace finetune {

// Rotary position embeddings (RoPE): the members of rope_parameters.
struct RopeParameters {
  std::string rope_type = "default";  // one of rope_types()
  double rope_theta = 10000.0;
  std::optional<double> partial_rotary_factor = {};  // share of each head that is rotated
  std::optional<double> factor = {}, attention_factor = {};
  std::optional<double> low_freq_factor = {}, high_freq_factor = {};                       // llama3
  std::optional<double> beta_fast = {}, beta_slow = {}, mscale = {}, mscale_all_dim = {};  // yarn
  std::optional<bool> truncate = {};                                                       // yarn
  std::optional<bool> mrope_interleaved = {};  // qwen3_5, and the next: of images
  std::vector<int64_t> mrope_section = {};
  std::optional<double> alpha = {};                         // dynamic of hunyuan_v1_dense
  std::optional<double> llama_4_scaling_beta = {};          // ministral3, and the next
  std::optional<int64_t> max_position_embeddings = {};      // has no effect
  std::vector<double> short_factor = {}, long_factor = {};  // longrope
  std::optional<int64_t> original_max_position_embeddings = {};
};
// By layer type; "" for all layers, if a model has one type only.
using RopeByLayerType = std::map<std::string, RopeParameters>;

using NumberOrText = std::variant<int64_t, std::string>;

// What differs in one layer of a decoder.
struct LayerConfig {
  std::optional<int64_t> head_dim = {}, num_key_value_heads = {};
  bool operator==(const LayerConfig&) const = default;
};
using PerLayerConfig = std::map<int64_t, LayerConfig>;

// Fields that decoder families have in addition to ModelConfig's common fields. A family reads and
// writes those that its class in transformers has.
struct DecoderConfig {
  std::optional<int64_t> pad_token_id;
  // Each of them ends a text; the first is also ModelConfig::eos_token_id.
  std::vector<int64_t> eos_token_ids;
  // Always set in a configuration that was parsed or made by default_model_config().
  std::optional<int64_t> num_key_value_heads, head_dim;
  double rms_norm_eps = 1e-6;
  double attention_dropout = 0.0;
  bool attention_bias = false, mlp_bias = false;
  bool attention_out_bias = false;                          // seed_oss
  double embedding_multiplier = 1.0, logits_scaling = 1.0;  // granite, and the next two
  double residual_multiplier = 1.0, attention_multiplier = 1.0;
  RopeByLayerType rope_parameters = {{"", {}}};
  // "full_attention" or "sliding_attention" for each layer; never empty in families with layer
  // types.
  std::vector<std::string> layer_types;
  std::optional<int64_t> sliding_window;
  bool use_sliding_window = false;     // qwen2, qwen3, smollm3
  int64_t max_window_layers = 28;      // qwen2, qwen3: layers below this one have full attention
  int64_t sliding_window_pattern = 6;  // gemma3_text: every n-th layer has full attention
  std::optional<NumberOrText> layer_pattern = 4;  // exaone4: the same, or a name for it
  bool use_parallel_residual = false;             // gpt_neox, stablelm
  bool qk_layernorm = false;                      // phi, stablelm; true is not available
  // smollm3: 1 for each layer that does use RoPE, despite the name.
  std::vector<int64_t> no_rope_layers;
  int64_t no_rope_layer_interval = 4;
  int64_t query_pre_attn_scalar = 256;  // gemma2, gemma3_text
  std::optional<double> attn_logit_softcapping, final_logit_softcapping;
  std::optional<bool> use_bidirectional_attention;
  int64_t original_max_position_embeddings = 4096;  // phi3
  double resid_pdrop = 0.0, embd_pdrop = 0.0;       // phi3, gpt2, seed_oss
  // gpt2
  std::optional<int64_t> n_inner;
  bool scale_attn_weights = true, scale_attn_by_inverse_layer_idx = false;
  bool reorder_and_upcast_attn = false;
  // qwen3_5_text: layers that are gated delta nets
  int64_t linear_conv_kernel_dim = 4, linear_key_head_dim = 128, linear_value_head_dim = 128;
  int64_t linear_num_key_heads = 16, linear_num_value_heads = 32;
  std::optional<int64_t> full_attention_interval;
  // lfm2: layers that are short convolutions
  int64_t conv_L_cache = 3, block_multiple_of = 256;
  bool conv_bias = false, block_auto_adjust_ff_dim = true;
  std::optional<double> block_ffn_dim_multiplier = 1.0;
  std::vector<int64_t> full_attn_idxs;
  // olmoe, qwen3_moe: mixtures of experts
  std::optional<int64_t> num_experts, moe_intermediate_size;  // gemma4_text: without effect
  int64_t num_experts_per_tok = 8, decoder_sparse_step = 1;
  bool norm_topk_prob = false, output_router_logits = false;  // the latter true is not available
  double router_aux_loss_coef = 0.001;
  std::vector<int64_t> mlp_only_layers;             // which have no experts
  std::optional<double> clip_qkv;                   // olmoe; only null is available
  double swiglu_alpha = 1.702, swiglu_limit = 7.0;  // gpt_oss; only this alpha is available
  // gemma4_text, gemma3n_text. Layers that the map does not have are as the other fields say.
  std::optional<PerLayerConfig> per_layer_config;
  int64_t global_head_dim = 512;  // of full attention, in a file without per_layer_config
  std::optional<int64_t> num_global_key_value_heads;  // the same, if attention_k_eq_v
  std::optional<std::string> bidirectional;  // use_bidirectional_attention: "vision" or "all"
  bool attention_k_eq_v = false, enable_moe_block = false, use_double_wide_mlp = false;
  std::optional<int64_t> top_k_experts;  // without effect
  int64_t num_kv_shared_layers = 0;  // the last layers, which read earlier layers' keys and values
  int64_t vocab_size_per_layer_input = 262144, hidden_size_per_layer_input = 256;
  // gemma3n_text: sizes and shares of each layer's feed-forward network
  std::vector<int64_t> intermediate_sizes;
  std::vector<double> activation_sparsity_pattern;
  int64_t altup_num_inputs = 4, altup_active_idx = 0, laurel_rank = 64;
  std::optional<double> altup_coef_clip = 120.0;
  bool altup_correct_scale = true;
};

// Fields of some encoders in addition to ModelConfig's; modernbert also uses some of
// DecoderConfig's (attention_dropout, biases, rope_parameters, layer_types).
struct EncoderConfig {
  // modernbert
  int64_t local_attention = 128;  // window size in tokens, half on each side
  std::optional<int64_t> global_attn_every_n_layers;
  bool norm_bias = false, decoder_bias = true, classifier_bias = false;
  double embedding_dropout = 0.0, mlp_dropout = 0.0;
  double initializer_cutoff_factor = 2.0;
  std::string classifier_pooling = "cls";  // or "mean"; eurobert: "late", "bos" or "mean"
  std::string classifier_activation = "gelu";
  std::optional<int64_t> cls_token_id = 50281;
  bool deterministic_flash_attn = false, sparse_prediction = false;  // have no effect here
  int64_t sparse_pred_ignore_index = -100;

  // deberta-v2
  bool relative_attention = false, position_biased_input = true;
  int64_t max_relative_positions = -1;      // below 1: max_position_embeddings
  std::optional<int64_t> position_buckets;  // distance buckets on each side; below 1: none
  std::vector<std::string> pos_att_type;    // "c2p", "p2c"
  std::optional<std::string> norm_rel_ebd;  // "layer_norm" or "none"
  std::optional<bool> share_att_key;  // distances use the query and key projections of the tokens
  std::optional<int64_t> pooler_hidden_size, embedding_size, attention_head_size;
  std::optional<int64_t> conv_kernel_size;  // 0: no convolution
  double pooler_dropout = 0.0;
  std::string pooler_hidden_act = "gelu";
  std::optional<double> cls_dropout;  // of pooled classifiers; unset: hidden_dropout_prob
  bool rotary_value = false;          // roformer; true is not available
  // distilbert, electra
  bool sinusoidal_pos_embds = false;
  double qa_dropout = 0.1, seq_classif_dropout = 0.2;
  std::string summary_type = "first", summary_activation = "gelu";
  bool summary_use_proj = true;
  double summary_last_dropout = 0.1;

  int64_t relative_attention_num_buckets = 32;  // mpnet

  int64_t mask_token_id = 128002;  // eurobert

  // ernie
  int64_t task_type_vocab_size = 3;
  bool use_task_id = false;

  bool legacy = true;  // the masked LM's head is named "cls", otherwise "lm_predictions"
};

// A dense layer after the pooling: a(W x + b).
struct DenseConfig {
  std::string module;  // the folder, and the begin of its parameters' names: "2_Dense"
  int64_t in_features = 0;
  int64_t out_features = 0;
  bool bias = true;
  std::string activation_function = "Tanh";  // one of dense_activations()
};
[[nodiscard]] std::vector<std::string> dense_activations();

// How hidden states become an embedding: the modules of sentence-transformers after its
// transformer, and what goes with them. Names are sentence-transformers'.
struct EmbeddingConfig {
  std::string pooling_mode = {};        // one of pooling_modes(); empty: see pooling_mode_of()
  bool include_prompt = true;           // the tokens of a prompt are pooled, too
  std::vector<DenseConfig> dense = {};  // in their order
  bool normalize = false;               // to length 1
  std::vector<std::pair<std::string, std::string>> prompts = {};  // name, text
  std::optional<int64_t> max_seq_length = {};
  std::string similarity_fn_name = "cosine";  // or "dot"
  // Of config_sentence_transformers.json: the first dimensions, which alone are used.
  std::optional<int64_t> truncate_dim = {};
  // Why embeddings of the folder's modules are not available; empty: they are.
  std::string refusal = {};
};
[[nodiscard]] const std::vector<std::string>& pooling_modes();

// The head of transformers' JevForDecision, which scores the options of a question at its mark: row
// offsets[type] + i of a matrix for option i. Names are JevConfig's.
struct JevConfig {
  int64_t num_verbalizers = 0;  // rows of the matrix; 0: the model has no such head
  // By type, in transformers' order: noul, choice, score.
  std::array<int64_t, 3> offsets = {0, 8, 2};
  double softcap = 0.0;  // c: scores x become c tanh(x / c); 0: no soft-capping
  [[nodiscard]] bool operator==(const JevConfig&) const = default;
};

// The head of Laya's DecisionModel, which scores each option of a question at its [MASK]: layers
// over all tokens, then a score of each mark. Names are those of its rl_agent_config.json.
struct LayaConfig {
  int64_t head_layers = 2;
  int64_t max_len = 512;       // tokens of a question with its state, which is cut to fit
  int64_t head_max_len = 192;  // tokens of the question
  int64_t actions = 1;   // outputs of act_head, which is kept as it is: act_costs and one more
  double dropout = 0.1;  // of the layers
  [[nodiscard]] bool operator==(const LayaConfig&) const = default;
};

// The content of config.json; names and values are transformers'. The defaults here are
// RobertaConfig's; default_model_config() returns those of the other families.
struct ModelConfig {
  std::string model_type = "roberta";  // one of model_types()
  int64_t vocab_size = 50265;
  int64_t hidden_size = 768;
  int64_t num_hidden_layers = 12;
  int64_t num_attention_heads = 12;
  int64_t intermediate_size = 3072;
  std::string hidden_act = "gelu";
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  std::optional<double> classifier_dropout;  // of heads; unset: hidden_dropout_prob
  int64_t max_position_embeddings = 512;
  int64_t type_vocab_size = 2;  // 0: token types are ignored
  double initializer_range = 0.02;
  double layer_norm_eps = 1e-12;
  int64_t pad_token_id = 1;
  std::optional<int64_t> bos_token_id = 0;
  std::optional<int64_t> eos_token_id = 2;
  bool tie_word_embeddings = true;
  std::vector<std::string> id2label = {"LABEL_0", "LABEL_1"};  // label names by id, at least one
  // "regression", "single_label_classification" or "multi_label_classification"
  std::optional<std::string> problem_type;

  // big_bird only; other families keep these defaults.
  std::optional<int64_t> sep_token_id;
  std::string attention_type = "original_full";  // or "block_sparse"
  bool use_bias = true;                          // of query, key and value
  bool rescale_embeddings = false;
  int64_t block_size = 64;
  int64_t num_random_blocks = 3;
  // Not in transformers, which ignores both: the seed of the random blocks (unset: 0), and
  // "huggingface" to choose these blocks as transformers does (BlockSparseOptions).
  std::optional<int64_t> random_blocks_seed;
  std::optional<std::string> bigbird_compat;

  // For decoders, and the fields that modernbert shares with them.
  DecoderConfig decoder;
  EncoderConfig encoder;  // of some encoders

  // A JSON object with the fields of config.json that are not above; kept for saving.
  std::string other_fields = "{}";
  bool is_nf4 = false;    // the folder's matrices are quantised to four bits; not written
  bool is_mxfp4 = false;  // the stacked matrices of its experts are; not written

  // Not in config.json: the model is a frozen base with this adapter. Everything that builds a
  // model, or describes one, reads it here.
  std::optional<nn::LoraConfig> lora;

  // Not in config.json: of a language model in a folder for images and text, how names of the class
  // that PEFT adapts begin instead of "model."; empty: as here.
  std::string name_in_whole = {};

  // Not in config.json: Head::kEmbedding, see embedding_files.h.
  EmbeddingConfig embedding = {};

  // Head::kDecision. Its config.json is of model_type "jev", and has the rest as text_config.
  JevConfig jev = {};
  // Head::kDecision as well: config.json is of model_type "laya".
  std::optional<LayaConfig> laya = {};

  // The maximum sequence length: RoBERTa-like models number positions from pad_token_id + 1, and no
  // sequence exceeds kLongestSequence tokens.
  [[nodiscard]] int64_t max_length() const;
};

// Dropout addresses a token within its sequence by 16 bits.
inline constexpr int64_t kLongestSequence = 1 << 16;

// The size of the heads of a decoder's layers of one type; "": of all.
[[nodiscard]] int64_t head_dim_of(const ModelConfig& config, const std::string& layers);
// Names of one tensor that transformers shares: the parameter's, and the other's.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> tied_names(
    const ModelConfig& config);
// What files of the family may call tensors (load_model_tensors()).
[[nodiscard]] StoredNames stored_names(const ModelConfig& config);
// Whether config.json `json` is that of a model of images and text, of which parse_model_config()
// takes the language model.
[[nodiscard]] bool has_other_parts(const nlohmann::ordered_json& json);
// Whether a tensor's name is that of such a model's other part.
[[nodiscard]] bool is_of_other_part(const std::string& name);
// Whether linear layers hold their weights as [in, out] (transformers' Conv1D, PEFT's
// fan_in_fan_out).
[[nodiscard]] bool has_transposed_linear(const ModelConfig& config);
// Whether config.json has the fields of block-sparse attention.
[[nodiscard]] bool has_block_sparse_attention(const ModelConfig& config);
// "default", "dynamic", "linear", "llama3", ...
[[nodiscard]] const std::vector<std::string>& rope_types();

// The supported families in alphabetical order: "bert", "big_bird", "llama", ...
[[nodiscard]] const std::vector<std::string>& model_types();

// transformers' defaults of a family. Requires: one of model_types().
[[nodiscard]] ModelConfig default_model_config(const std::string& model_type);

// Reads the fields of config.json; `where` is the prefix of every message. Every number is checked
// for plausible bounds before anything is allocated. Unknown fields are kept in other_fields;
// unknown values of known fields (model_type, hidden_act, is_decoder) are Error(kData).
[[nodiscard]] ModelConfig parse_model_config(const nlohmann::ordered_json& json,
                                             const std::string& where);
[[nodiscard]] ModelConfig read_model_config(const std::string& folder);

// Applies `config_overrides` (a mapping); a different model_type starts from that family's
// defaults. An unknown field is Error(kConfig) that suggests the nearest name.
[[nodiscard]] ModelConfig override_model_config(const ModelConfig& config,
                                                const nlohmann::ordered_json& overrides);

// Returns config.json as transformers writes it for class `architecture` ("RobertaForMaskedLM") and
// weights of type `dtype`, in which from_pretrained() then loads them. Without an architecture:
// only the model's own fields, for comparing two models.
[[nodiscard]] std::string model_config_json(const ModelConfig& config,
                                            const std::string& architecture,
                                            const std::string& dtype = "float32");
// The same of the bare encoder in a model with Laya's head.
[[nodiscard]] std::string encoder_config_json(const ModelConfig& config);

}  // namespace finetune
