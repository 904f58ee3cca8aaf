// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "finetune/model/model_config.h"
#include "finetune/task/predictor.h"

namespace finetune {

// How text is generated. Names and defaults are those of transformers' generate(), except
// max_new_tokens, whose default is that of its pipeline.
struct GenerationConfig {
  int64_t max_new_tokens = 256;
  bool do_sample = false;  // false: the most probable token
  double temperature = 1.0;
  int64_t top_k = 50;  // 0: all
  double top_p = 1.0;
  double repetition_penalty = 1.0;
  std::vector<int64_t> eos_token_ids = {};  // each of them ends a text
};

// Reads generation_config.json of the model (the end-of-text token from config.json if it has none)
// and applies the user's options. Settings that change the text but are not supported are logged.
// Throws Error(kData) for a damaged file, Error(kUsage) for an option.
[[nodiscard]] GenerationConfig read_generation_config(const std::string& folder,
                                                      const ModelConfig& model,
                                                      const PredictOptions& options);

// Returns the ids that end a text as config.json says.
[[nodiscard]] std::vector<int64_t> eos_token_ids_of(const ModelConfig& model);

}  // namespace finetune
