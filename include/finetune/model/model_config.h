// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace finetune {

// What config.json says of an encoder; names and defaults are those of transformers' RobertaConfig.
struct ModelConfig {
  std::string model_type = "roberta";
  int64_t vocab_size = 50265;
  int64_t hidden_size = 768;
  int64_t num_hidden_layers = 12;
  int64_t num_attention_heads = 12;
  int64_t intermediate_size = 3072;
  std::string hidden_act = "gelu";
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  int64_t max_position_embeddings = 512;
  int64_t type_vocab_size = 2;
  double initializer_range = 0.02;
  double layer_norm_eps = 1e-12;
  int64_t pad_token_id = 1;
  int64_t bos_token_id = 0;
  int64_t eos_token_id = 2;
  bool tie_word_embeddings = true;
  std::vector<std::string> id2label = {"LABEL_0", "LABEL_1"};  // names by number

  // The longest sequence: RoBERTa's positions begin behind the padding's own.
  [[nodiscard]] int64_t max_length() const { return max_position_embeddings - pad_token_id - 1; }
};

// Reads config.json's fields; `where` starts every message. Every number is checked against sane
// bounds before anything is allocated. Unknown fields are left alone, unknown values of known ones
// (model_type, hidden_act, is_decoder) are Error(kData).
[[nodiscard]] ModelConfig parse_model_config(const nlohmann::ordered_json& json,
                                             const std::string& where);
[[nodiscard]] ModelConfig read_model_config(const std::string& folder);

// Applies `config_overrides` (a mapping). A name that is no field is Error(kConfig) with the
// nearest one.
[[nodiscard]] ModelConfig override_model_config(const ModelConfig& config,
                                                const nlohmann::ordered_json& overrides);

// config.json as transformers writes it for the class `architecture` ("RobertaForMaskedLM").
[[nodiscard]] std::string model_config_json(const ModelConfig& config,
                                            const std::string& architecture);

}  // namespace finetune
