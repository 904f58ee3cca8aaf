// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
  std::vector<std::string> lora_modules_to_save;
  bool use_rslora = false;
  std::string dtype = "auto";

  static void describe(FieldList& field);
};

}  // namespace finetune
