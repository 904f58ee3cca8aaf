// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace finetune {

// How positions become rotations of queries and keys: the members of rope_parameters.
struct RopeParameters {
  std::string rope_type = "default";  // one of rope_types()
  double rope_theta = 10000.0;
  std::optional<double> partial_rotary_factor = {};  // the share of a head that is rotated
  std::optional<double> factor = {}, attention_factor = {};
  std::optional<double> low_freq_factor = {}, high_freq_factor = {};                       // llama3
  std::optional<double> beta_fast = {}, beta_slow = {}, mscale = {}, mscale_all_dim = {};  // yarn
  std::optional<bool> truncate = {};                                                       // yarn
  std::vector<double> short_factor = {}, long_factor = {};  // longrope
  std::optional<int64_t> original_max_position_embeddings = {};
};
// "" stands for all layers, where a model does not tell them apart.
using RopeByLayerType = std::map<std::string, RopeParameters>;

// What families of decoders have beside ModelConfig's common members. A family reads and writes
// those that its class in transformers has.
struct DecoderConfig {
  std::optional<int64_t> pad_token_id;
  std::vector<int64_t> eos_token_ids;  // each ends a text; the first is ModelConfig::eos_token_id
  // Never empty in a configuration that was read or made.
  std::optional<int64_t> num_key_value_heads, head_dim;
  double rms_norm_eps = 1e-6;
  double attention_dropout = 0.0;
  bool attention_bias = false, mlp_bias = false;
  RopeByLayerType rope_parameters = {{"", {}}};
  // "full_attention" or "sliding_attention" of each layer; never empty in a family that has them.
  std::vector<std::string> layer_types;
  std::optional<int64_t> sliding_window;
  bool use_sliding_window = false;      // qwen2, qwen3, smollm3
  int64_t max_window_layers = 28;       // qwen2, qwen3: layers before this one see everything
  int64_t sliding_window_pattern = 6;   // gemma3_text: every n-th layer sees everything
  std::vector<int64_t> no_rope_layers;  // smollm3: 1 for each layer that rotates, whatever the name
  int64_t no_rope_layer_interval = 4;
  int64_t query_pre_attn_scalar = 256;  // gemma2, gemma3_text
  std::optional<double> attn_logit_softcapping, final_logit_softcapping;
  std::optional<bool> use_bidirectional_attention;
  int64_t original_max_position_embeddings = 4096;  // phi3
  double resid_pdrop = 0.0, embd_pdrop = 0.0;       // phi3, gpt2
  std::optional<int64_t> n_inner;                   // gpt2, and all below
  bool scale_attn_weights = true, scale_attn_by_inverse_layer_idx = false;
  bool reorder_and_upcast_attn = false;
};

// What modernbert and deberta-v2 have beside ModelConfig's and, of modernbert, DecoderConfig's
// members (attention_dropout, biases, rope_parameters, layer_types).
struct EncoderConfig {
  // modernbert
  int64_t local_attention = 128;  // number of tokens in a window, half on each side
  std::optional<int64_t> global_attn_every_n_layers;
  bool norm_bias = false, decoder_bias = true, classifier_bias = false;
  double embedding_dropout = 0.0, mlp_dropout = 0.0;
  double initializer_cutoff_factor = 2.0;
  std::string classifier_pooling = "cls";  // or "mean"
  std::string classifier_activation = "gelu";
  std::optional<int64_t> cls_token_id = 50281;
  bool deterministic_flash_attn = false, sparse_prediction = false;  // without effect here
  int64_t sparse_pred_ignore_index = -100;

  // deberta-v2
  bool relative_attention = false, position_biased_input = true;
  int64_t max_relative_positions = -1;      // below 1: max_position_embeddings
  std::optional<int64_t> position_buckets;  // of distances, on each side; below 1: none
  std::vector<std::string> pos_att_type;    // "c2p", "p2c"
  std::optional<std::string> norm_rel_ebd;  // "layer_norm" or "none"
  std::optional<bool> share_att_key;        // distances are projected as tokens are
  std::optional<int64_t> pooler_hidden_size, embedding_size, attention_head_size;
  std::optional<int64_t> conv_kernel_size;  // 0: no convolution
  double pooler_dropout = 0.0;
  std::string pooler_hidden_act = "gelu";
  std::optional<double> cls_dropout;  // of pooled classifiers; none: hidden_dropout_prob
  bool legacy = true;                 // the masked LM's head is "cls", else "lm_predictions"
};

// What config.json says of a model; names and values are transformers'. The defaults here are
// RobertaConfig's, default_model_config() gives those of the other families.
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
  std::optional<double> classifier_dropout;  // of heads; nothing: hidden_dropout_prob
  int64_t max_position_embeddings = 512;
  int64_t type_vocab_size = 2;  // 0: types of tokens are passed over
  double initializer_range = 0.02;
  double layer_norm_eps = 1e-12;
  int64_t pad_token_id = 1;
  std::optional<int64_t> bos_token_id = 0;
  std::optional<int64_t> eos_token_id = 2;
  bool tie_word_embeddings = true;
  std::vector<std::string> id2label = {"LABEL_0", "LABEL_1"};  // names by number, at least one
  // "regression", "single_label_classification" or "multi_label_classification"
  std::optional<std::string> problem_type;

  // big_bird alone; the others keep these.
  std::optional<int64_t> sep_token_id;
  std::string attention_type = "original_full";  // or "block_sparse"
  bool use_bias = true;                          // of query, key and value
  bool rescale_embeddings = false;
  int64_t block_size = 64;
  int64_t num_random_blocks = 3;
  // Ours, which transformers passes over: the seed of the random blocks, nothing: 0; and
  // "huggingface" where these are to be chosen as transformers does (BlockSparseOptions).
  std::optional<int64_t> random_blocks_seed;
  std::optional<std::string> bigbird_compat;

  // Decoders alone, but for what modernbert shares.
  DecoderConfig decoder;
  EncoderConfig encoder;  // modernbert and deberta-v2 alone

  // A JSON object: what config.json holds beyond the fields above, kept for saving.
  std::string other_fields = "{}";

  // The longest sequence: the positions of RoBERTa's kin begin after the padding's; attention
  // takes at most kLongestSequence tokens.
  [[nodiscard]] int64_t max_length() const;
};

// Dropout numbers a sequence's tokens in 16 bits.
inline constexpr int64_t kLongestSequence = 1 << 16;

// Whether config.json has the fields of block-sparse attention.
[[nodiscard]] bool has_block_sparse_attention(const ModelConfig& config);
// "default", "dynamic", "linear", "llama3", ...
[[nodiscard]] const std::vector<std::string>& rope_types();

// The families that have a class, by the alphabet: "bert", "big_bird", "llama", ...
[[nodiscard]] const std::vector<std::string>& model_types();

// transformers' defaults of a family. Requires: one of model_types().
[[nodiscard]] ModelConfig default_model_config(const std::string& model_type);

// Reads config.json's fields; `where` starts every message. Every number is checked against sane
// bounds before anything is allocated. Unknown fields are kept in other_fields, unknown values of
// known ones (model_type, hidden_act, is_decoder) are Error(kData).
[[nodiscard]] ModelConfig parse_model_config(const nlohmann::ordered_json& json,
                                             const std::string& where);
[[nodiscard]] ModelConfig read_model_config(const std::string& folder);

// Applies `config_overrides` (a mapping); another model_type begins at that family's defaults. A
// name that is no field is Error(kConfig) with the nearest one.
[[nodiscard]] ModelConfig override_model_config(const ModelConfig& config,
                                                const nlohmann::ordered_json& overrides);

// config.json as transformers writes it for the class `architecture` ("RobertaForMaskedLM"), whose
// weights are of type `dtype`, the one that from_pretrained() then takes. With no architecture: the
// model's own fields alone, the text by which two models are compared.
[[nodiscard]] std::string model_config_json(const ModelConfig& config,
                                            const std::string& architecture,
                                            const std::string& dtype = "float32");

}  // namespace finetune
