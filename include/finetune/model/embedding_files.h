// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "finetune/model/model_config.h"

// The files of sentence-transformers next to config.json.
namespace finetune {

// Returns how a folder's model embeds: modules.json, the configuration of its pooling, its prompts
// and its longest text. nullopt: there is no modules.json. A module that is not available is a
// refusal in the result. Throws Error(kData) for damaged files.
[[nodiscard]] std::optional<EmbeddingConfig> read_embedding_config(const std::string& folder);

// Throws Error(kData) if the model of a folder does not embed here as its files say.
void require_embedding(const ModelConfig& config, const std::string& folder);

// Returns the pooling of a model: its own, else lasttoken for a decoder and mean for an encoder.
[[nodiscard]] std::string pooling_mode_of(const ModelConfig& config);

// Its activation under transformers' name.
[[nodiscard]] std::string transformers_activation(const DenseConfig& dense);

// The length of its vectors.
[[nodiscard]] int64_t embedding_dimension(const ModelConfig& config);

// Returns the name and content of each file. `config` is the model's; `max_seq_length`: tokens to
// which texts are truncated.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> embedding_files(
    const ModelConfig& config, int64_t max_seq_length);

}  // namespace finetune
