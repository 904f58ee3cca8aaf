// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/params/weight.h"

namespace finetune::nn {

// Modules as PEFT's configuration names them: a module, or its last components ("q_proj",
// "self_attn.q_proj"); or one regular expression for the whole name (is_pattern).
struct ModuleNames {
  std::vector<std::string> names = {};
  bool is_pattern = false;
};

// Which modules of a model get a LoRA adapter (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large
// Language Models"). Fields, defaults and matching are those of PEFT's LoraConfig, except that
// target_modules is "all-linear" in every family.
struct LoraConfig {
  int64_t r = 16;
  double lora_alpha = 32.0;
  double lora_dropout = 0.05;
  bool use_rslora = false;  // scale alpha / sqrt(r) instead of alpha / r (Kalajdzievski 2023)
  bool use_dora = false;    // LoraTerm::magnitude
  ModuleNames target_modules = {.names = {"all-linear"}};  // all linear layers but the output layer
  ModuleNames exclude_modules = {};                        // of the targets
  // Parameters that stack the matrices of experts, by the last components of their names in
  // transformers ("mlp.experts.gate_up_proj").
  std::vector<std::string> target_parameters = {};
  // Other ranks and alphas of single modules: regular expressions for the last components.
  std::vector<std::pair<std::string, int64_t>> rank_pattern = {};
  std::vector<std::pair<std::string, double>> alpha_pattern = {};
  // Only in these layers, by the first number in a name; empty: in all. As in PEFT, not for targets
  // that are whole names or a regular expression.
  std::vector<int64_t> layers_to_transform = {};
  // The folder or name of the base, as it is recorded with the adapter; nothing here reads it.
  std::string base_model_name_or_path = {};
  // Modules that are trained whole and saved with the adapter, by their last components.
  std::vector<std::string> modules_to_save = {};
  // Whether one of these may share its weight with the output layer.
  bool ensure_weight_tying = false;
  // Biases that are trained and saved with the adapter: "none", "lora_only" (of layers with an
  // adapter) or "all".
  std::string bias = "none";
  // The adapter_config.json that this was read from, for messages; empty: keys of the
  // configuration.
  std::string file = {};
};

// An adapter that does not fit the model, with the key to change.
class LoraError : public Error {
 public:
  LoraError(const char* key, const std::string& why) : Error(ErrorKind::kConfig, why), key_(key) {}
  [[nodiscard]] const char* key() const { return key_; }

 private:
  const char* key_;
};

// The adapter of one linear layer [out, in], of a stack of E of them (StackedLinear), or of one
// embedding [rows, columns]. That of an embedding is y = W[ids] + s A^T[ids] B^T, without dropout.
struct LoraTerm {
  Weight a;              // A [r, in]: "lora_A.weight"; [r, rows]: "lora_embedding_A"
  Weight b;              // B [out, r]: "lora_B.weight"; [columns, r]: "lora_embedding_B"
  double scale = 1.0;    // s
  double dropout = 0.0;  // of the layer's input
  // m [out] of DoRA (Liu et al. 2024, equation 5), or undefined: "lora_magnitude_vector". Then
  // y = m / ||W + s B A|| (x W^T + s drop(x) A^T B^T) + b, with the norm of each output's row,
  // which is a constant of the backward pass (section 4.3).
  Weight magnitude;
};

// What the configuration says of one module.
struct LoraSettings {
  int64_t r;
  double scale;  // s: y = x W^T + b + s drop(x) A^T B^T
};

// Answers where a LoRA adapter is, while a model's parts are built.
class LoraTargets {
 public:
  // Throws LoraError naming a target that is no regular expression.
  explicit LoraTargets(const LoraConfig& config);
  ~LoraTargets();
  LoraTargets(const LoraTargets&) = delete;
  LoraTargets& operator=(const LoraTargets&) = delete;

  // The adapter of the linear layer with this name ("model.layers.0.self_attn.q_proj"); nullopt: it
  // has none. `is_output`: it is the output layer of a language model. What was asked for is what
  // check() judges. Throws LoraError if two patterns disagree.
  [[nodiscard]] std::optional<LoraSettings> find(const std::string& module, bool is_output);
  // The same of an embedding, which all-linear does not name. Throws LoraError with use_dora.
  [[nodiscard]] std::optional<LoraSettings> find_embedding(const std::string& module);
  // The same of a parameter that stacks matrices, by its name in transformers. Throws LoraError
  // with use_dora or dropout, which PEFT does not have there.
  [[nodiscard]] std::optional<LoraSettings> find_parameter(const std::string& name);
  // Throws LoraError if a target is an output layer, if no layer was a target (lists the last
  // components of all that could be), or if a pattern matched no target.
  void check() const;
  [[nodiscard]] const LoraConfig& config() const { return config_; }

 private:
  class Names;
  template <typename T>
  class Patterns;

  [[nodiscard]] bool is_target(const std::string& module) const;
  [[nodiscard]] bool is_in_layers(const std::string& module) const;
  [[nodiscard]] LoraSettings settings_of(const std::string& module);
  void check_parameters() const;

  LoraConfig config_;
  std::unique_ptr<const Names> targets_, excluded_;
  std::unique_ptr<Patterns<int64_t>> ranks_;
  std::unique_ptr<Patterns<double>> alphas_;
  std::vector<std::string> layers_;      // names that were asked for
  std::vector<std::string> parameters_;  // the same of find_parameter()
  bool has_any_ = false;
  std::string refused_;  // an output layer that is a target
};

// Whether a parameter is in a module that modules_to_save names, as PEFT trains and saves them: by
// the end of the module's name, so that "norm" also names "input_layernorm".
[[nodiscard]] bool is_saved_whole(const std::string& parameter,
                                  const std::vector<std::string>& modules);
// Whether an adapter's configuration trains a parameter of the base whole and saves it with the
// adapter: by modules_to_save, or as a bias. `is_adapted`: whether its module has an adapter.
[[nodiscard]] bool trains_whole(const LoraConfig& config, const std::string& parameter,
                                bool is_adapted);
// is_saved_whole() by whole components of the name, as PEFT leaves targets out.
[[nodiscard]] bool is_of_modules(const std::string& parameter,
                                 const std::vector<std::string>& modules);

}  // namespace finetune::nn
