// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "finetune/config/json_text.h"

namespace finetune {

class FieldList;

// Contrastive training; names and defaults are those of sentence-transformers. describe() documents
// the keys.
struct EmbeddingArgs {
  std::vector<std::string> text_columns;
  std::optional<std::string> loss_type;
  JsonText loss_kwargs;
  std::vector<std::string> matryoshka_dims;  // integers
  std::optional<int64_t> mini_batch_size;
  JsonText prompts;
  std::optional<std::string> pooling_mode;
  std::optional<bool> include_prompt;
  JsonText dense;
  std::optional<bool> normalize_embeddings;
  std::optional<double> center_rewards_coefficient;  // of task reward, TRL's

  static void describe(FieldList& field);
};

}  // namespace finetune
