// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "finetune/model/model_config.h"
#include "finetune/params/weight.h"

// The files of an adapter, as PEFT 0.21 writes and reads them: adapter_config.json and
// adapter_model.safetensors, whose names begin with "base_model.model.".
namespace finetune {

// The end of the name of the first matrix of an embedding's adapter.
inline constexpr std::string_view kEmbeddingFactor = ".lora_embedding_A";

// How names of a model of images and text begin where its language model's begin with "model.".
inline constexpr char kInWhole[] = "model.language_model.";

// The full names of the layers that have an adapter, sorted, as PEFT writes all-linear.
[[nodiscard]] std::set<std::string> adapted_modules(const Weights& weights);

// The name of a weight as transformers' modules have it, and PEFT's files, where those of a model
// have another: of experts.
[[nodiscard]] std::string name_in_transformers(const std::string& weight);

// Replaces the labels and the problem type of the base's configuration by those that the adapter in
// `folder` was trained with, as far as the folder's files say.
void read_recorded_labels(const std::string& folder, ModelConfig& config);
// read_adapter_config() for the file's content.
[[nodiscard]] nn::LoraConfig parse_adapter_config(nlohmann::ordered_json json,
                                                  const std::string& path);

}  // namespace finetune
