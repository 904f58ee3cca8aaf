// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "finetune/config/json_text.h"

namespace finetune {

class FieldList;

// Chat data; names and defaults are those of TRL's SFTConfig. describe() documents the keys.
struct ChatArgs {
  bool assistant_only_loss = false;
  std::optional<bool> completion_only_loss;
  std::string train_turns = "all";
  std::optional<std::string> chat_template_path;
  JsonText chat_template_kwargs;
  std::optional<std::string> instruction_template;
  std::optional<std::string> response_template;
  std::string special_tokens_in_text = "parse";
  std::string packing_strategy = "bfd";
  bool skip_bad_rows = false;
  int64_t generate_samples = 0;

  static void describe(FieldList& field);
};

}  // namespace finetune
