// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/params/weight.h"

namespace finetune::nn {

// Which modules of a model get a LoRA adapter (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large
// Language Models"). Fields, defaults and matching are those of PEFT's LoraConfig, except that
// target_modules is "all-linear" in every family.
struct LoraConfig {
  int64_t r = 16;
  double lora_alpha = 32.0;
  double lora_dropout = 0.05;
  bool use_rslora = false;  // scale alpha / sqrt(r) instead of alpha / r (Kalajdzievski 2023)
  // "all-linear" alone: every linear layer of the backbone. One entry that is not a list in the
  // configuration is a regular expression for the whole name (is_pattern). Otherwise names: of a
  // module, or its last components ("q_proj", "self_attn.q_proj").
  std::vector<std::string> target_modules = {"all-linear"};
  bool is_pattern = false;
  // The folder or name of the base, as it is recorded with the adapter; nothing here reads it.
  std::string base_model_name_or_path = {};
  // Modules that are trained whole and saved with the adapter, by their last components.
  std::vector<std::string> modules_to_save = {};
  // The adapter_config.json that this was read from, for messages; empty: keys of the
  // configuration.
  std::string file = {};

  // s: y = x W^T + b + s drop(x) A^T B^T.
  [[nodiscard]] double scale() const;
};

// An adapter that does not fit the model, with the key to change.
class LoraError : public Error {
 public:
  LoraError(const char* key, const std::string& why) : Error(ErrorKind::kConfig, why), key_(key) {}
  [[nodiscard]] const char* key() const { return key_; }

 private:
  const char* key_;
};

// The adapter of one linear layer [out, in].
struct LoraTerm {
  Weight a;              // A [r, in]: "lora_A.weight"
  Weight b;              // B [out, r]: "lora_B.weight"
  double scale = 1.0;    // s
  double dropout = 0.0;  // of the layer's input
};

// Answers where a LoRA adapter is, while a model's parts are built.
class LoraTargets {
 public:
  // Throws Error(kConfig) naming a target that is no regular expression.
  explicit LoraTargets(const LoraConfig& config);
  ~LoraTargets();
  LoraTargets(const LoraTargets&) = delete;
  LoraTargets& operator=(const LoraTargets&) = delete;

  // Whether the linear layer with this name ("model.layers.0.self_attn.q_proj") gets an adapter.
  // `is_output`: it is not part of the backbone, such as lm_head and classifiers.
  [[nodiscard]] bool has(const std::string& module, bool is_output);
  // Throws Error(kConfig) if a target is an output layer, or if no layer was a target: lists the
  // last components of all that could be.
  void check() const;
  [[nodiscard]] const LoraConfig& config() const { return config_; }

 private:
  struct Pattern;

  LoraConfig config_;
  std::unique_ptr<const Pattern> pattern_;
  std::vector<std::string> linear_;  // names that were asked for
  bool has_any_ = false;
  std::string refused_;  // an output layer that is a target
};

// Whether a parameter belongs to one of these modules, as modules_to_save names them.
[[nodiscard]] bool is_of_modules(const std::string& parameter,
                                 const std::vector<std::string>& modules);

}  // namespace finetune::nn
