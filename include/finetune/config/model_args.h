// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "finetune/config/json_text.h"

namespace finetune {

class FieldList;

// The task, and the model and tokenizer to start from. describe() documents the keys.
struct ModelArgs {
  std::string task = "mlm";
  std::optional<std::string> model_name_or_path;
  std::optional<std::string> model_type;
  JsonText config_overrides;
  std::optional<std::string> config_name;
  bool ignore_mismatched_sizes = false;
  std::optional<std::string> tokenizer_name;
  std::optional<std::string> bigbird_compat;
  std::vector<std::string> freeze;

  static void describe(FieldList& field);
};

}  // namespace finetune
