// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "finetune/model/model.h"

namespace finetune {

// Returns the folder of a model name: the name itself, or the folder in the local Hugging Face
// cache. `where` is the prefix of messages. Throws Error(kConfig): for a possible hub name with the
// command that downloads it, for a path with the nearest folder. `base`: the folder in which a
// relative name was searched first; empty: the current one.
[[nodiscard]] std::string resolve_model_folder(const std::string& name, const std::string& where,
                                               const std::string& base = "");

// Reads adapter_config.json of a folder; nullopt if it has none, or if it is a whole model.
// Throws Error(kData) naming a setting that changes results and is not available here.
[[nodiscard]] std::optional<nn::LoraConfig> read_adapter_config(const std::string& folder);
// Returns the folder of an adapter's base. `folder`: the adapter's, for messages. Throws
// Error(kData) naming the file in which the base's folder stands.
[[nodiscard]] std::string adapter_base(const std::string& folder, const nn::LoraConfig& lora);
// The folder whose config.json describes the model of a folder: that of an adapter's base, else
// itself.
[[nodiscard]] std::string config_folder(const std::string& folder);
// The content of adapter_config.json, with all fields of PEFT 0.21. Requires: the model has an
// adapter.
[[nodiscard]] std::string adapter_config_json(const Model& model);
// The names that a trained parameter has in adapter_model.safetensors; one that is shared with the
// output layer has two.
class AdapterNames {
 public:
  explicit AdapterNames(const Model& model);
  [[nodiscard]] std::vector<std::string> of(const std::string& parameter) const;

 private:
  std::string name_in_whole_;      // ModelConfig's
  std::set<std::string> modules_;  // with an adapter
  std::vector<std::pair<std::string, std::string>> tied_;
};
// The format that holds the base of a model with an adapter exactly, as it is stored in a folder or
// in the base of the adapter there; four bits where the run that wrote the adapter kept it so.
// float32 without an adapter; reads nothing then.
[[nodiscard]] BaseFormat base_format(const ModelConfig& config, const std::string& folder);

// Copies the weights of a model folder by name, of an adapter's folder those of its base and its
// own. Throws Error(kData).
LoadReport load_folder_weights(Model& model, const std::string& folder,
                               const LoadOptions& options = {});

// Copies the weights of an adapter's folder into a model whose base is there already. Throws
// Error(kData) if one of its tensors has no place in the model, or one of the model's is not there.
void load_adapter_weights(Model& model, const std::string& folder);
// Copies the tensors of an adapter that another program trained into a model whose base is loaded.
// Throws Error(kCheckpoint) if the adapter computes something else than the model's, Error(kData)
// if its tensors do not fit. Requires: the model has an adapter.
void load_trained_adapter(Model& model, const std::string& folder);

// Initialises the named parameters with the values that a new model of this seed has.
void draw_weights(Model& model, uint64_t seed, const std::vector<std::string>& names);

}  // namespace finetune
