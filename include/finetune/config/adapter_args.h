// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "finetune/config/json_text.h"

namespace finetune {

class FieldList;

// A LoRA adapter on a frozen base; names and defaults are those of TRL's ModelConfig, except that
// lora_target_modules is all-linear. describe() documents the keys.
struct AdapterArgs {
  bool use_peft = false;
  int64_t lora_r = 16;
  double lora_alpha = 32.0;
  double lora_dropout = 0.05;
  std::vector<std::string> lora_target_modules = {"all-linear"};
  std::vector<std::string> lora_exclude_modules;
  std::vector<std::string> lora_target_parameters;
  std::vector<std::string> lora_modules_to_save;
  JsonText lora_rank_pattern;
  JsonText lora_alpha_pattern;
  std::vector<std::string> lora_layers_to_transform;
  bool use_rslora = false;
  bool use_dora = false;
  std::string lora_bias = "none";
  bool lora_ensure_weight_tying = false;
  std::optional<std::string> adapter_name_or_path;
  std::optional<double> loraplus_lr_ratio;
  double loraplus_lr_embedding = 1e-6;
  std::string dtype = "auto";
  std::string load_in_4bit = "false";  // "true", "false", "auto": memory_budget decides
  std::string bnb_4bit_quant_type = "nf4";
  bool use_bnb_nested_quant = false;
  std::vector<std::string> llm_int8_skip_modules;

  static void describe(FieldList& field);

 private:
  static void describe_base(FieldList& field);
};

}  // namespace finetune
